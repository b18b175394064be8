# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/rollout"
require_relative "fakes"

class RolloutTest < Minitest::Test
  include SupervisorFakes

  def setup
    build_fleet(workers: 2)
    @fleet.children.each { |child| make_ready(child) }
    @old = @fleet.children.dup
    @other = Origin.new(1, state: :loading)
    @over = 0
    @rollout = Chaton::Supervisor::Rollout.new(@fleet, @other, log: @log) { @over += 1 }
  end

  def step
    @rollout.tick(0.0)
  end

  def successor
    @other.asked.last.first
  end

  def test_nobody_is_touched_while_the_code_loads
    step
    assert_empty @other.asked
    assert(@old.all?(&:ready?))
  end

  def test_an_old_worker_leaves_only_when_its_successor_is_ready
    @other.state = :ready
    step
    assert_predicate @old.first, :ready?
    make_ready(successor)
    step
    assert_predicate @old.first, :stopping?
    assert_predicate @old.last, :ready?
    assert_equal 1, @other.asked.size, "the next one waits until the old one has left"
  end

  def test_all_seats_come_to_the_new_origin
    finish
    assert_equal :done, @rollout.state
    assert_equal [@other], @fleet.seats.map(&:origin).uniq
    assert_same @other, @fleet.origin
    assert_predicate @origin, :retired?
    assert_equal 1, @over
  end

  def test_code_that_does_not_load_changes_nothing
    @other.fail("syntax error")
    step
    assert_equal :abandoned, @rollout.state
    assert_equal "syntax error", @rollout.reason
    assert(@old.all?(&:ready?))
    assert_same @origin, @fleet.origin
    assert_predicate @other, :retired?
  end

  def test_what_was_replaced_is_taken_back
    replace_first
    lose(successor, "exit 1")
    step
    assert_predicate @rollout, :running?
    back = @origin.asked.last.first
    assert_equal 0, back.index
    make_ready(back)
    step
    lose(@other.asked.first.first, "exit 0")
    step
    assert_equal :abandoned, @rollout.state
    assert_equal [@origin], @fleet.seats.map(&:origin).uniq
  end

  def test_an_old_worker_that_dies_meanwhile_is_not_started_twice
    @other.state = :ready
    step
    lose(@old.first)
    tick(100)
    assert_equal [1, 0], @fleet.children.map(&:index)
    make_ready(successor)
    step
    assert_same successor.origin, @fleet.seats.first.origin
  end

  def test_a_seat_taken_away_meanwhile_is_left_out
    replace_first
    @fleet.shrink
    lose(successor, "exit 0")
    step
    assert_equal :done, @rollout.state
  end

  def test_where_there_can_be_one_at_a_time_the_old_one_leaves_first
    @fleet.define_singleton_method(:retires_first?) { |seat| seat.index == 1 }
    replace_first
    assert_predicate @old.last, :stopping?
    assert_equal 1, @other.asked.size, "nobody comes for it yet"
    tick(100)
    lose(@old.last, "exit 0")
    tick(100)
    step
    assert_equal 1, successor.index
    make_ready(successor)
    step
    assert_equal :done, @rollout.state
    assert_equal [@other], @fleet.children.map(&:origin).uniq
  end

  def test_where_the_new_one_does_not_come_up_the_old_code_comes_back
    @fleet.define_singleton_method(:retires_first?) { |_| true }
    @other.state = :ready
    step
    lose(@old.first, "exit 0")
    step
    lose(successor, "exit 1")
    step
    assert_equal :abandoned, @rollout.state
    tick(100)
    assert_equal [1, 0], @fleet.children.map(&:index)
    assert_equal [@origin], @fleet.children.map(&:origin).uniq
  end

  def test_a_seat_taken_away_while_its_worker_leaves_is_left_out
    @fleet.define_singleton_method(:retires_first?) { |seat| seat.index == 1 }
    replace_first
    @fleet.shrink
    lose(@old.last, "exit 0")
    step
    assert_equal :done, @rollout.state
    assert_equal 1, @other.asked.size
  end

  def test_who_cannot_wait_comes_first
    urgent = @old.last
    @rollout = Chaton::Supervisor::Rollout.new(@fleet, @other, log: @log, urgent: ->(child) { child.equal?(urgent) })
    @other.state = :ready
    step
    assert_equal 1, successor.index
    make_ready(successor)
    step
    lose(urgent, "exit 0")
    step
    assert_equal 0, successor.index
  end

  private

  # One worker of two is of the new code.
  def replace_first
    @other.state = :ready
    step
    make_ready(successor)
    step
    lose(@old.first, "exit 0")
    step
  end

  def finish
    @other.state = :ready
    step
    @old.each do |old|
      make_ready(successor)
      step
      lose(old, "exit 0")
      step
    end
  end
end
