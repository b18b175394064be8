# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/single_ceiling"
require_relative "memory_fakes"

class SingleCeilingTest < Minitest::Test
  include MemoryFakes

  def setup
    @kernel = Kernel.new
    @output = StringIO.new
    use(40)
  end

  def test_without_a_ceiling_it_never_wants_a_turn
    build
    assert_nil @ceiling.due_at
    assert_nil @ceiling.check(100.0)
    assert_equal 40 * MIB, @ceiling.to_h[:pss]
  end

  def test_below_it_nothing_happens
    build(limit: 100 * MIB)
    assert_equal 2.0, @ceiling.due_at
    assert_nil @ceiling.check(2.0)
    assert_equal 4.0, @ceiling.due_at
  end

  def test_it_trims_and_then_starts_again
    build(limit: 100 * MIB)
    use(110)
    assert_equal :trim, @ceiling.check(100.0)
    assert_nil @ceiling.check(101.0), "not due"
    assert_equal :restart, @ceiling.check(102.0)
    assert_match(/memory reached 110 MiB of 100 MiB: collecting and trimming/, @output.string)
    assert_match(/INFO  memory reached 110 MiB of 100 MiB: starting again in place/, @output.string)
  end

  def test_at_the_hard_ceiling_there_is_no_time_to_trim
    build(limit: 100 * MIB)
    use(150)
    assert_equal :restart, @ceiling.check(100.0)
  end

  def test_trimming_that_helped_is_the_end_of_it
    build(limit: 100 * MIB)
    use(110)
    assert_equal :trim, @ceiling.check(100.0)
    use(80)
    assert_nil @ceiling.check(102.0)
    use(110)
    assert_equal :trim, @ceiling.check(170.0)
  end

  def test_a_young_process_goes_on_and_logs_once
    build(limit: 100 * MIB)
    use(110)
    assert_equal :trim, @ceiling.check(10.0)
    3.times { |round| assert_nil @ceiling.check(20.0 + (round * 10)) }
    assert_equal 1, @output.string.scan(/WARN  memory reached .* it runs for less than 60 s/).size
    assert_equal :restart, @ceiling.check(62.0)
  end

  def test_one_that_starts_again_in_vain_must_grow_older_each_time
    build(limit: 100 * MIB, past: Chaton::Supervisor::MemoryRestarts.new(1))
    use(110)
    assert_equal :trim, @ceiling.check(50.0)
    assert_nil @ceiling.check(60.0)
    assert_match(/it runs for less than 120 s and goes on; raise `limit` in `memory { }`/, @output.string)
    assert_empty @ceiling.restart_environment
    assert_equal :trim, @ceiling.check(118.0)
    assert_equal :restart, @ceiling.check(120.0)
    assert_match(/WARN  memory .*: starting again in place, although .* not before 240 s; raise `limit`/,
                 @output.string)
    assert_equal({ "CHATON_MEMORY_RESTARTS" => "#{Process.pid} 2" }, @ceiling.restart_environment)
  end

  def test_one_that_grows_later_has_not_started_in_vain
    build(limit: 100 * MIB, past: Chaton::Supervisor::MemoryRestarts.new(1))
    use(110)
    assert_equal :trim, @ceiling.check(50.0)
    use(80)
    assert_nil @ceiling.check(52.0)
    use(110)
    assert_equal :trim, @ceiling.check(200.0)
    assert_equal :restart, @ceiling.check(202.0)
    assert_equal "#{Process.pid} 0", @ceiling.restart_environment.values.first
    refute_match(/WARN/, @output.string)
  end

  def test_it_looks_again_soon_after_it_has_trimmed
    build(limit: 100 * MIB, check_every_s: 3600.0)
    use(110)
    assert_equal :trim, @ceiling.check(3600.0)
    assert_equal 3602.0, @ceiling.due_at
    assert_equal :restart, @ceiling.check(3602.0)
  end

  def test_in_development_it_only_logs
    build(limit: 100 * MIB, restarts: false)
    use(110)
    assert_equal :trim, @ceiling.check(100.0)
    assert_nil @ceiling.check(110.0)
    assert_nil @ceiling.check(120.0)
    assert_equal 1, @output.string.scan("it goes on, because it does not restart in development").size
  end

  def test_shared_memory_counts_in_part
    build(limit: 100 * MIB)
    use(90, rss: 150)
    assert_nil @ceiling.check(100.0)
  end

  def test_the_ceiling_of_the_container_counts_too
    @kernel.group = { limit: 100 * MIB, current: 0 }
    build
    use(90)
    assert_equal :trim, @ceiling.check(100.0)
  end

  def test_an_application_above_the_ceiling_is_refused
    error = assert_raises(Chaton::ConfigError) { build(limit: 30 * MIB) }
    assert_match(/memory limit 30 MiB is below what the application needs after loading: 40 MiB/, error.message)
  end

  private

  def build(restarts: true, past: Chaton::Supervisor::MemoryRestarts.new, **given)
    log = Chaton::Telemetry::Log.new(io: @output)
    @ceiling = Chaton::Supervisor::SingleCeiling.new(memory_settings(**given), restarts: restarts, log: log,
                                                                               past: past, kernel: @kernel, now_s: 0.0)
  end

  def use(pss, rss: pss) = @kernel.set(Process.pid, pss * MIB, rss: rss * MIB)
end
