# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/restart_policy"

class RestartPolicyTest < Minitest::Test
  Policy = Chaton::Supervisor::RestartPolicy

  def policy(**changes)
    Policy.new(delay_s: 0.5, delay_max_s: 4, count: 6, window_s: 60, **changes)
  end

  # Deaths after service, at these times → delays.
  SERVED = [
    [[0], [0.0]],
    [[0, 1, 2, 3], [0.0, 0.5, 1.0, 2.0]],
    [[0, 1, 2, 3, 4, 5, 6], [0.0, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]],
    [[0, 61], [0.0, 0.0]],
    [[0, 1, 62], [0.0, 0.5, 0.0]],
    [[0, 30, 59, 70], [0.0, 0.5, 1.0, 1.0]]
  ].freeze

  def test_a_worker_that_served_is_always_replaced
    SERVED.each do |times, delays|
      one = policy
      assert_equal delays, times.map { |at| one.died(at.to_f).delay_s }, "deaths at #{times}"
    end
  end

  def test_exits_with_status_0_earn_no_growing_delay
    one = policy
    assert_equal [0.0, 0.5, 0.5, 0.5, 0.0], [0.0, 1.0, 2.0, 3.0, 90.0].map { |at| one.died(at, clean: true).delay_s }
    assert_equal [0.0, 0.5], [one.died(91.0), one.died(92.0)].map(&:delay_s), "crashes are counted apart"
  end

  def test_failed_boots_in_a_row_end_it
    one = policy
    verdicts = Array.new(6) { one.boot_failed }
    assert_equal [0.5, 1.0, 2.0, 4.0, 4.0], verdicts.first(5).map(&:delay_s)
    assert_equal Policy::GiveUp.new(6), verdicts.last
  end

  def test_refusals_are_tried_again_for_ever
    one = policy(count: 2)
    assert_equal [0.5, 1.0, 2.0, 4.0, 4.0, 4.0], Array.new(6) { one.refused.delay_s }
    assert_kind_of Policy::RestartAfter, one.boot_failed
    one.ready
    assert_in_delta 0.5, one.refused.delay_s
    assert_in_delta 0.1, policy(delay_s: 0).refused.delay_s
  end

  def test_a_ready_worker_begins_a_new_row
    one = policy(count: 2)
    one.boot_failed
    one.ready
    assert_kind_of Policy::RestartAfter, one.boot_failed
    assert_kind_of Policy::GiveUp, one.boot_failed
  end

  def test_a_hundred_thousand_deaths_keep_the_longest_delay
    one = policy
    last = nil
    100_000.times { |at| last = one.died(at * 0.0001) }
    assert_in_delta 4.0, last.delay_s
  end

  def test_no_delay_can_be_configured
    one = policy(delay_s: 0)
    assert_equal [0.0, 0.0], [one.died(0.0).delay_s, one.died(0.1).delay_s]
  end
end
