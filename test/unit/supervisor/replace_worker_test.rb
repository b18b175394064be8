# frozen_string_literal: true

require_relative "ceiling_enforcer_case"

# A worker that is replaced because a person asks for it.
class ReplaceWorkerTest < CeilingEnforcerCase
  def test_the_successor_starts_first_and_it_is_not_counted_as_one_of_memory
    build
    old = child(1)
    assert_nil @ceilings.replace(1)
    assert_equal 1, newest.index
    assert_match(/being replaced/, @ceilings.replace(0))
    arrive(newest)
    assert_predicate old, :stopping?
    assert_equal :restart, old.end_reason
    leave(old)
    turn
    refute_predicate @ceilings, :busy?
    assert_equal 0, status[:recycled_total]
    assert_nil @ceilings.replace(0)
  end

  def test_a_number_that_no_worker_has_is_refused
    build
    assert_match(/no worker 2/, @ceilings.replace(2))
    refute_predicate @ceilings, :busy?
  end
end
