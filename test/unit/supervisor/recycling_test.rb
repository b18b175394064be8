# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/recycling"
require_relative "fakes"

class RecyclingTest < Minitest::Test
  include SupervisorFakes

  def setup
    build_worker_set(workers: 2)
    @worker_set.children.each { |child| make_ready(child) }
    @old, @other = @worker_set.children.dup
    @other = nil
    @worker_slot = @worker_set.worker_slots.first
  end

  def test_the_old_one_leaves_when_the_new_one_is_ready
    recycle(:replace_first)
    assert_predicate @old, :ready?
    make_ready(newest)
    step
    assert_predicate @old, :stopping?
    assert_same newest, @worker_slot.child
    assert_same @forker, newest.forker
    assert_predicate @recycling, :running?
    lose(@old, "exit 0")
    assert_equal({ memory: 1 }, @worker_set.exits.select { |_, count| count.positive? })
    step
    assert_equal :done, @recycling.state
    assert_untouched
  end

  def test_a_successor_that_does_not_come_up_leaves_the_old_one_in_place
    recycle(:replace_first)
    lose(newest, "exit 1")
    step
    assert_equal :abandoned, @recycling.state
    assert_predicate @old, :ready?
    assert_same @old, @worker_slot.child
    assert_untouched
  end

  def test_without_room_the_old_one_leaves_first_and_its_end_is_no_death
    recycle(:retire_first)
    assert_predicate @old, :stopping?
    assert_equal 2, @worker_set.children.size
    tick
    step
    assert_equal 2, @worker_set.children.size, "nobody comes before it has left"
    lose(@old, "exit 0")
    step
    tick
    assert_equal 2, @worker_set.children.size
    make_ready(@worker_slot.child)
    step
    assert_equal :done, @recycling.state
    assert_untouched
  end

  def test_at_once_it_is_not_let_finish
    signals = []
    @old.define_singleton_method(:signal) { |name| signals << name }
    recycle(:retire_first, at_once: true)
    assert_equal %w[QUIT], signals
    assert_nil @old.death_cause("exit 0")
    assert_equal :memory, @old.end_reason
    assert_predicate @recycling, :at_once?
  end

  def test_one_that_follows_a_retired_one_and_fails_is_tried_again_as_ever
    recycle(:retire_first)
    lose(@old, "exit 0")
    step
    tick
    lose(@worker_slot.child, "exit 1")
    step
    assert_predicate @recycling, :running?
    tick(1.5)
    lose(@worker_slot.child, "exit 1")
    step
    assert_equal :abandoned, @recycling.state
    refute_nil @worker_slot.given_up
  end

  def test_an_old_one_that_dies_meanwhile_is_replaced_by_the_successor
    recycle(:replace_first)
    lose(@old)
    tick(100)
    step
    assert_equal 2, @worker_set.children.size
    make_ready(newest)
    step
    assert_equal :done, @recycling.state
    assert_same newest, @worker_slot.child
  end

  def test_both_dying_leaves_the_seat_to_its_own_policy
    recycle(:replace_first)
    successor = newest
    lose(@old)
    lose(successor, "exit 1")
    step
    assert_equal :abandoned, @recycling.state
    tick
    assert_equal 2, @worker_set.children.size
  end

  def test_a_number_that_is_taken_away_meanwhile_ends_it
    @worker_slot = @worker_set.worker_slots.last
    recycle(:replace_first)
    @worker_set.shrink
    step
    assert_equal :done, @recycling.state
    assert_equal 1, @worker_set.worker_slots.size
  end

  def test_one_that_is_stopped_at_once_in_the_middle_of_it
    recycle(:replace_first)
    hard = Chaton::Supervisor::Recycling.new(@worker_set, @worker_slot, :retire_first, at_once: true)
    lose(@old, "exit 0")
    [@recycling, hard].each(&:tick)
    tick
    assert_equal 2, @worker_set.children.size, "the successor on its way is the replacement"
    make_ready(newest)
    [@recycling, hard].each(&:tick)
    assert_equal %i[done done], [@recycling, hard].map(&:state)
  end

  private

  def recycle(how, **options)
    @recycling = Chaton::Supervisor::Recycling.new(@worker_set, @worker_slot, how, **options)
    step
  end

  def step = @recycling.tick

  def newest = @forker.asked.last.first

  # No death was counted: the next one is answered without delay.
  def assert_untouched
    refute_match(/worker died/, @output.string)
    child = @worker_slot.child
    lose(child)
    assert_operator @worker_slot.due_at, :<=, Chaton::Supervisor::EventLoop.now_s
  end
end
