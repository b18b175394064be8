# frozen_string_literal: true

require "test_helper"
require_relative "fakes"

class FleetTest < Minitest::Test
  include SupervisorFakes

  def test_it_opens_as_many_as_asked
    build_fleet(workers: 3)
    assert_equal [0, 1, 2], @fleet.children.map(&:index)
    assert_equal 3, @fleet.children.map(&:slot).uniq.size
    refute_predicate @fleet, :complete?
    @fleet.children.each { |child| make_ready(child) }
    assert_predicate @fleet, :complete?
  end

  def test_a_worker_that_served_is_replaced_at_once_and_its_slot_cleared
    build_fleet
    first = @fleet.children.first
    make_ready(first)
    lose(first)
    assert_equal [first.slot], @board.cleared
    tick
    assert_equal [0, 1], @fleet.children.map(&:index).sort
    refute_includes @fleet.children, first
    assert_match(/worker died  worker=0.*SIGKILL/, @output.string)
  end

  def test_a_failed_boot_waits
    build_fleet(workers: 1)
    begun_s = Chaton::Supervisor::EventLoop.now_s
    lose(@fleet.children.first, "exit 1")
    tick
    ended_s = Chaton::Supervisor::EventLoop.now_s
    assert_empty @fleet.children
    assert_includes (begun_s + 1)..(ended_s + 1), @fleet.due_at
    tick(1.1)
    assert_equal 1, @fleet.children.size
  end

  def test_failed_boots_in_a_row_give_the_seat_up
    build_fleet(workers: 1)
    2.times do
      child, theirs = @origin.asked.last
      theirs.write("!no database")
      lose(child, "exit 1")
      tick(5)
    end
    assert_predicate @fleet, :hopeless?
    assert_equal "no database", @fleet.seats.first.given_up
    assert_nil @fleet.due_at
    assert_match(/worker 0 failed to boot 2 times in a row/, @output.string)
  end

  def test_others_serve_on_when_one_is_given_up
    build_fleet(workers: 2)
    make_ready(@fleet.children.last)
    2.times do
      lose(@fleet.children.find { |child| child.index.zero? })
      tick(5)
    end
    refute_predicate @fleet, :hopeless?
    assert_predicate @fleet, :complete?
  end

  # Two of one number may have one name among others.
  def test_a_number_is_free_when_its_worker_is_gone
    build_fleet(workers: 2)
    leaving = @fleet.children.last
    make_ready(leaving)
    assert @fleet.shrink
    assert @fleet.grow
    tick
    assert_equal [0, 1, 2], @fleet.children.map(&:index)
    lose(leaving, "exit 0")
    assert @fleet.grow
    tick
    assert_equal [0, 1, 2], @fleet.children.map(&:index).sort
  end

  def test_growing_takes_the_lowest_free_number
    build_fleet(workers: 2)
    assert @fleet.grow
    tick
    assert_equal [0, 1, 2], @fleet.children.map(&:index)
    Chaton::Supervisor::Fleet::EXTRA_WORKERS_MAX.times { @fleet.grow }
    refute @fleet.grow
  end

  def test_shrinking_stops_the_highest_and_keeps_the_last
    build_fleet(workers: 2)
    assert @fleet.shrink
    assert_equal [false, true], @fleet.children.map(&:stopping?)
    lose(@fleet.children.last, "exit 0")
    tick(5)
    assert_equal [0], @fleet.children.map(&:index)
    refute @fleet.shrink
  end

  def test_stopping_starts_nobody
    build_fleet
    @fleet.stop
    assert(@fleet.children.all?(&:stopping?))
    @fleet.children.dup.each { |child| lose(child, "exit 0") }
    tick(100)
    assert_empty @fleet.children
    assert_nil @fleet.due_at
    assert_match(/worker stopped/, @output.string)
  end

  def test_a_boot_that_takes_too_long_is_ended
    build_fleet(workers: 1)
    tick(11)
    assert_match(/within boot_timeout/, @output.string)
    assert_equal :killed, @origin.state
  end

  def test_a_fork_that_is_refused_is_a_failed_boot
    build_fleet(workers: 1)
    @origin.define_singleton_method(:fork_worker) { |_child, _theirs| raise Errno::EAGAIN }
    lose(@fleet.children.first)
    tick(2)
    assert_predicate @fleet, :hopeless?
    assert_match(/fork failed/, @output.string)
  end

  def test_the_first_crash_names_compaction_once
    build_fleet(workers: 2)
    [0, 1].each { |index| crash(index, "killed by SIGSEGV (core dumped)") }
    assert_equal 1, @output.string.scan("`memory { compact false }`").size
    build_fleet(workers: 2)
    crash(0, "killed by SIGKILL")
    crash(1, "exit 1")
    refute_match(/compact/, @output.string)
    build_fleet(workers: 1, memory: compacting(false))
    crash(0, "killed by SIGABRT")
    refute_match(/compact/, @output.string)
  end

  def crash(index, how)
    child = @fleet.children.find { |one| one.index == index }
    make_ready(child)
    lose(child, how)
  end

  def test_nothing_is_due_while_the_board_is_full
    build_fleet(workers: 1)
    slots = Chaton::Supervisor::Fleet.slots(1)
    (slots - 1).times { @fleet.start_successor(@fleet.seats.first, @origin) }
    refute_predicate @fleet, :room?
    refute @fleet.grow
  end
end
