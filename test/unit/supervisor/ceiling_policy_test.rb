# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/ceiling_policy"
require_relative "memory_fakes"

class CeilingPolicyTest < Minitest::Test
  include MemoryFakes

  Policy = Chaton::Supervisor::CeilingPolicy

  # The ceiling of worker 0 is 100, that of worker 1 less by what jitter takes; hard is 150.
  ONE = { limit: 100 }.freeze
  TREE = { limit_tree: 300 }.freeze

  # Settings, workers (from 0), what else is known → kind of decision, index, how.
  CASES = {
    "nothing is set" => [{}, [{ pss: 1 << 40 }], {}, nil],
    "all are small" => [ONE, [{ pss: 50 }, { pss: 60 }], {}, nil],
    "close and idle" => [ONE, [{ pss: 95 }], {}, [:trim, 0]],
    "close and at work" => [ONE, [{ pss: 95, in_flight: 1 }], {}, nil],
    "close and told before" => [ONE, [{ pss: 95, trimmed_s: 59 }], {}, nil],
    "close and told long before" => [ONE, [{ pss: 95, trimmed_s: 61 }], {}, [:trim, 0]],
    "close and told twice in vain" => [ONE, [{ pss: 95, trimmed_s: 119, trims: 2 }], {}, nil],
    "close and told twice in vain, later" => [ONE, [{ pss: 95, trimmed_s: 120, trims: 2 }], {}, [:trim, 0]],
    "close and told ever so often" => [ONE, [{ pss: 95, trimmed_s: 3599, trims: 99 }], {}, nil],
    "close and told ever so often, later" => [ONE, [{ pss: 95, trimmed_s: 3600, trims: 99 }], {}, [:trim, 0]],
    "over, not yet told" => [ONE, [{ pss: 100, in_flight: 9 }], {}, [:trim, 0]],
    "over, told just now" => [ONE, [{ pss: 100, trimmed_s: 0.4 }], {}, nil],
    "over, told in vain" => [ONE, [{ pss: 100, trimmed_s: 0.5 }], {}, [:recycle, 0, :replace_first]],
    "over, told long ago" => [ONE, [{ pss: 100, trimmed_s: 61 }], {}, [:trim, 0]],
    "over and about to reach the hard one" => [ONE, [{ pss: 100, ahead: 150 }], {}, [:recycle, 0, :replace_first]],
    "over, told just now, about to reach the hard one" =>
      [ONE, [{ pss: 100, ahead: 150, trimmed_s: 0.1 }], {}, [:recycle, 0, :replace_first]],
    "a sibling's ceiling is lower" => [ONE, [{ pss: 96, in_flight: 1 }, { pss: 96, in_flight: 1 }], {}, [:trim, 1]],
    "the largest first" => [ONE, [{ pss: 101 }, { pss: 120 }, { pss: 110 }], {}, [:trim, 1]],
    "over while all are replaced" => [ONE, [{ pss: 120 }], { held: true }, [:trim, 0]],
    "over and told while all are replaced" => [ONE, [{ pss: 120, trimmed_s: 2 }], { held: true }, nil],
    "about to reach the hard one while all are replaced" =>
      [ONE, [{ pss: 120, ahead: 150 }], { held: true }, [:trim, 0]],
    "hard while all are replaced" => [ONE, [{ pss: 150 }], { held: true }, [:stop, 0]],
    "one at a time" => [ONE, [{ pss: 120, trimmed_s: 2 }], { busy: true }, nil],
    "leaving" => [ONE, [{ pss: 120, state: :stopping, trimmed_s: 2 }], {}, nil],
    "booting" => [ONE, [{ pss: 120, state: :booting, trimmed_s: 2 }], {}, nil],
    "left alone" => [ONE, [{ pss: 120, trimmed_s: 2, age_s: 59, rest_s: 60 }], {}, nil],
    "left alone long enough" => [ONE, [{ pss: 120, trimmed_s: 2, age_s: 60, rest_s: 60 }], {},
                                 [:recycle, 0, :replace_first]],
    "no room for two" => [{ limit: 100, limit_tree: 200 }, [{ pss: 120, fresh: 40, trimmed_s: 2 }], { total: 170 },
                          [:recycle, 0, :retire_first]],
    "just room for two" => [{ limit: 100, limit_tree: 210 }, [{ pss: 120, fresh: 40, trimmed_s: 2 }], { total: 170 },
                            [:recycle, 0, :replace_first]],
    "no room for two in the container" =>
      [{ limit: 100, limit_tree: :off }, [{ pss: 120, fresh: 40, trimmed_s: 2 }],
       { total: 170, current: 965, container: 1000 }, [:recycle, 0, :retire_first]],
    "hard" => [ONE, [{ pss: 150, in_flight: 3 }], {}, [:stop, 0]],
    "hard though another one is replaced" => [ONE, [{ pss: 150 }], { busy: true }, [:stop, 0]],
    "hard while it leaves" => [ONE, [{ pss: 150, state: :stopping }], { busy: true }, [:stop, 0]],
    "hard, one at a time" => [ONE, [{ pss: 180, ending: true }, { pss: 160 }], { busy: true }, nil],
    "hard from the start" => [ONE, [{ pss: 150, fresh: 150, age_s: 1, rest_s: 60, in_flight: 1 }], {}, nil],
    "hard from the start, later" => [ONE, [{ pss: 150, fresh: 150, age_s: 60, rest_s: 60 }], {}, [:stop, 0]],
    "all together below" => [TREE, [{ pss: 200 }], { total: 299 }, nil],
    "all together over" => [TREE, [{ pss: 90 }, { pss: 120 }], { total: 300 }, [:trim, 1]],
    "all together over, told in vain" => [TREE, [{ pss: 90 }, { pss: 120, trimmed_s: 3 }], { total: 300 },
                                          [:recycle, 1, :retire_first]],
    "all together over, the largest has not grown" =>
      [TREE, [{ pss: 90, own: 80, fresh: 10 }, { pss: 120, own: 110, fresh: 110 }], { total: 300 }, [:trim, 0]],
    "all together over, nobody has grown" =>
      [TREE, [{ pss: 150, own: 100, fresh: 100 }, { pss: 150, own: 100, fresh: 95 }], { total: 300 }, nil],
    "the container is almost full" =>
      [TREE, [{ pss: 90, own: 80, fresh: 10 }, { pss: 120, own: 110, fresh: 70 }],
       { total: 800, current: 970, container: 1000 }, [:stop, 0]],
    "the container is almost full of files" =>
      [TREE, [{ pss: 90, own: 80, fresh: 10 }, { pss: 120, own: 110, fresh: 70 }],
       { total: 299, current: 999, container: 1000 }, nil],
    "the container is almost full, one is ending" =>
      [TREE, [{ pss: 90, ending: true }, { pss: 120 }], { busy: true, total: 850, current: 980, container: 1000 },
       nil],
    "the container is full, one is ending" =>
      [TREE, [{ pss: 90, ending: true }, { pss: 120 }], { total: 850, current: 990, container: 1000 }, [:stop, 1]],
    "the container is full of something else" =>
      [TREE, [{ pss: 90, own: 50, fresh: 50 }], { total: 100, current: 999, container: 1000 }, nil]
  }.freeze

  CASES.each do |name, (settings, workers, known, expected)|
    define_method("test_#{name.tr(" ,'", "_")}") do
      decision = decide(settings, workers, **known)
      if decision
        found = [kind(decision), decision.worker.index,
                 *(decision.how if decision.is_a?(Policy::RecycleWorker))]
      end
      assert_equal [expected], [found]
      assert_match(/\d+ B/, decision.reason) if decision
    end
  end

  def test_the_reason_names_the_ceiling_and_the_reading
    assert_equal "its memory reached 120 B (soft ceiling 100 B)", decide(ONE, [{ pss: 120 }]).reason
    assert_equal "its memory reached 160 B (hard ceiling 150 B)", decide(ONE, [{ pss: 160 }]).reason
    assert_match(/300 B of 300 B together \(limit_tree\)/, decide(TREE, [{ pss: 120 }], total: 300).reason)
  end

  def test_cramped_means_that_no_worker_has_grown
    policy = Policy.new(limits_of(**TREE))
    same = [worker(0, pss: 150, own: 100, fresh: 100)]
    assert policy.cramped?(same, Policy::TreeReading.new(total: 300))
    refute policy.cramped?(same, Policy::TreeReading.new(total: 299))
    refute policy.cramped?([worker(0, pss: 150, own: 120, fresh: 100)], Policy::TreeReading.new(total: 300))
  end

  private

  def decide(settings, workers, busy: false, held: false, total: 0, current: nil, container: nil)
    tree = Policy::TreeReading.new(total: total, current: current, container: container)
    workers = workers.each_with_index.map { |given, index| worker(index, **given) }
    Policy.new(limits_of(**settings)).decide(workers, tree, busy: busy, held: held)
  end

  def worker(index, pss:, **given)
    defaults = { state: :ready, age_s: 100, own: pss, fresh: 10, ahead: pss, in_flight: 0, trims: 1, rest_s: 0,
                 ending: false }
    Policy::WorkerReading.new(index: index, pss: pss, **defaults, **given)
  end

  def kind(decision) = decision.class.name[/\w+\z/].delete_suffix("Worker").downcase.to_sym
end
