# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/phased_restart"
require_relative "fakes"

class RolloutTest < Minitest::Test
  include SupervisorFakes

  def setup
    build_worker_set(workers: 2)
    @worker_set.children.each { |child| make_ready(child) }
    @old = @worker_set.children.dup
    @other = Forker.new(1, state: :loading)
    @over = 0
    @phased_restart = Chaton::Supervisor::PhasedRestart.new(@worker_set, @other, log: @log) { @over += 1 }
  end

  def step
    @phased_restart.tick(0.0)
  end

  def successor
    @other.asked.last.first
  end

  def test_no_worker_is_replaced_while_the_code_loads
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
    assert_equal :done, @phased_restart.state
    assert_equal [@other], @worker_set.worker_slots.map(&:forker).uniq
    assert_same @other, @worker_set.forker
    assert_predicate @forker, :retired?
    assert_equal 1, @over
    assert_equal({ restart: 2 }, @worker_set.exits.select { |_, count| count.positive? })
  end

  def test_code_that_does_not_load_changes_nothing
    @other.fail("syntax error")
    step
    assert_equal :abandoned, @phased_restart.state
    assert_equal "syntax error", @phased_restart.reason
    assert(@old.all?(&:ready?))
    assert_same @forker, @worker_set.forker
    assert_predicate @other, :retired?
  end

  def test_replaced_workers_go_back_to_the_old_code
    replace_first
    lose(successor, "exit 1")
    step
    assert_predicate @phased_restart, :running?
    back = @forker.asked.last.first
    assert_equal 0, back.index
    make_ready(back)
    step
    lose(@other.asked.first.first, "exit 0")
    step
    assert_equal :abandoned, @phased_restart.state
    assert_equal [@forker], @worker_set.worker_slots.map(&:forker).uniq
  end

  def test_an_old_worker_that_dies_meanwhile_is_not_started_twice
    @other.state = :ready
    step
    lose(@old.first)
    tick(100)
    assert_equal [1, 0], @worker_set.children.map(&:index)
    make_ready(successor)
    step
    assert_same successor.forker, @worker_set.worker_slots.first.forker
  end

  def test_a_seat_taken_away_meanwhile_is_left_out
    replace_first
    @worker_set.shrink
    lose(successor, "exit 0")
    step
    assert_equal :done, @phased_restart.state
  end

  def test_where_there_can_be_one_at_a_time_the_old_one_leaves_first
    @worker_set.define_singleton_method(:retires_first?) { |worker_slot| worker_slot.index == 1 }
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
    assert_equal :done, @phased_restart.state
    assert_equal [@other], @worker_set.children.map(&:forker).uniq
  end

  def test_where_the_new_one_does_not_come_up_the_old_code_comes_back
    @worker_set.define_singleton_method(:retires_first?) { |_| true }
    @other.state = :ready
    step
    lose(@old.first, "exit 0")
    step
    lose(successor, "exit 1")
    step
    assert_equal :abandoned, @phased_restart.state
    tick(100)
    assert_equal [1, 0], @worker_set.children.map(&:index)
    assert_equal [@forker], @worker_set.children.map(&:forker).uniq
  end

  def test_a_seat_taken_away_while_its_worker_leaves_is_left_out
    @worker_set.define_singleton_method(:retires_first?) { |worker_slot| worker_slot.index == 1 }
    replace_first
    @worker_set.shrink
    lose(@old.last, "exit 0")
    step
    assert_equal :done, @phased_restart.state
    assert_equal 1, @other.asked.size
  end

  def test_a_worker_that_cannot_wait_comes_first
    last = @old.last
    first = ->(child) { child.equal?(last) }
    @phased_restart = Chaton::Supervisor::PhasedRestart.new(@worker_set, @other, log: @log, first: first)
    @other.state = :ready
    step
    assert_equal 1, successor.index
    make_ready(successor)
    step
    lose(last, "exit 0")
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
