# frozen_string_literal: true

require "test_helper"
require "chaton/config/settings"
require "chaton/supervisor/memory_limits"
require_relative "memory_fakes"

class MemoryLimitsTest < Minitest::Test
  include MemoryFakes

  # settings, limit of the container → one worker, hard, tree, number of warnings
  CASES = {
    "nothing is asked for" => [{}, nil, nil, nil, nil, 0],
    "a limit alone" => [{ limit: 100 }, nil, 100, 150, nil, 0],
    "a hard one beside it" => [{ limit: 100, limit_hard: 120 }, nil, 100, 120, nil, 0],
    "a hard one alone" => [{ limit_hard: 120 }, nil, nil, 120, nil, 0],
    "a hard one below the soft one" => [{ limit: 100, limit_hard: 80 }, nil, 100, 110, nil, 0],
    "a hard one that is the soft one" => [{ limit: 100, limit_hard: 100 }, nil, 100, 110, nil, 0],
    "all together" => [{ limit_tree: 300 }, nil, nil, nil, 300, 0],
    "a container" => [{}, 1000, nil, nil, 900, 0],
    "a container that is not to count" => [{ limit_tree: :off }, 1000, nil, nil, nil, 0],
    "a limit within the container" => [{ limit: 400 }, 1000, 400, 600, 900, 0],
    "a limit above the container" => [{ limit: 2000 }, 1000, 900, 1350, 900, 1],
    "a tree above the container" => [{ limit_tree: 2000 }, 1000, nil, nil, 900, 1],
    "both off in a container" => [{ limit: :off, limit_tree: :off }, 1000, nil, nil, nil, 0]
  }.freeze

  CASES.each do |name, (given, container, worker, hard, tree, warnings)|
    define_method("test_#{name.tr(" ", "_")}") do
      limits = Chaton::Supervisor::MemoryLimits.new(memory_settings(**given), container: container)
      assert_equal [worker, hard, tree], [limits.worker, limits.hard, limits.tree]
      assert_equal warnings, limits.warnings.size, limits.warnings.inspect
      assert_equal [worker, hard, tree].any?, limits.on?
    end
  end

  def test_workers_do_not_reach_their_ceilings_together
    limits = limits_of(limit: 1_000_000)
    softs = Array.new(16) { |index| limits.soft(index) }
    assert_equal 1_000_000, softs.first
    assert_equal softs.size, softs.uniq.size
    assert(softs.all? { |soft| soft.between?(900_000, 1_000_000) })
    # Neighbours are far apart.
    assert(softs.each_cons(2).all? { |one, other| (one - other).abs > 30_000 })
    assert_nil limits_of.soft(0)
  end

  def test_a_refusal_names_both_sizes
    limits = limits_of(limit: 50 << 20)
    assert_nil limits.refusal((50 << 20) - 1)
    assert_match(/\Amemory limit 50 MiB is below what the application needs after loading: 83 MiB; raise `limit`/,
                 limits.refusal(83 << 20))
    assert_match(/\Amemory limit 50 MiB leaves nothing above what .* 48 MiB/, limits.refusal(48 << 20, 46 << 20))
    assert_nil limits_of.refusal(1 << 40)
  end

  def test_a_worker_too_large_while_booting_is_killed_with_a_reason
    assert_match(/\Amemory limit_hard 75 MiB is below what .* while it is loading: 83 MiB; raise `limit_hard`/,
                 limits_of(limit: 50 << 20).refusal_of_boot(83 << 20))
  end

  def test_before_the_fork_only_a_share_counts
    limits = limits_of(limit: 50 << 20)
    limits.check(149 << 20, sharers: 3)
    limits.check(nil)
    assert_raises(Chaton::ConfigError) { limits.check(150 << 20, sharers: 3) }
  end

  def test_reading_the_limits_logs_the_effective_ones
    output = StringIO.new
    kernel = Kernel.new
    kernel.group = { limit: 100 << 20, current: 0 }
    log = Chaton::Telemetry::Log.new(io: output)
    limits = Chaton::Supervisor::MemoryLimits.read(memory_settings(limit: 200 << 20), log: log, kernel: kernel)
    assert_equal (100 << 20) * 9 / 10, limits.worker
    assert_match(/WARN  limit 200 MiB is more than the container leaves \(90 MiB, 0.9 of its limit 100 MiB\)/,
                 output.string)
    assert_match(/memory ceilings  limit="90 MiB"/, output.string)
    # The kernel of the test knows no process.
    assert_match(/ceilings apply to resident memory/, output.string)
  end
end
