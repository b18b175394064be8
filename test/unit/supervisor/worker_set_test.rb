# frozen_string_literal: true

require "test_helper"
require "support/open_files"
require_relative "fakes"

class WorkerSetTest < Minitest::Test
  include SupervisorFakes

  def test_it_opens_as_many_as_asked
    build_worker_set(workers: 3)
    assert_equal [0, 1, 2], @worker_set.children.map(&:index)
    assert_equal 3, @worker_set.children.map(&:scoreboard_slot).uniq.size
    refute_predicate @worker_set, :complete?
    @worker_set.children.each { |child| make_ready(child) }
    assert_predicate @worker_set, :complete?
  end

  def test_a_worker_that_served_is_replaced_at_once_and_its_slot_cleared
    build_worker_set
    first = @worker_set.children.first
    make_ready(first)
    lose(first)
    assert_equal [first.scoreboard_slot], @scoreboard.cleared
    tick
    assert_equal [0, 1], @worker_set.children.map(&:index).sort
    refute_includes @worker_set.children, first
    assert_match(/worker died  worker=0.*SIGKILL/, @output.string)
  end

  def test_a_failed_boot_waits
    build_worker_set(workers: 1)
    begun_s = Chaton::Supervisor::EventLoop.now_s
    lose(@worker_set.children.first, "exit 1")
    tick
    ended_s = Chaton::Supervisor::EventLoop.now_s
    assert_empty @worker_set.children
    assert_includes (begun_s + 1)..(ended_s + 1), @worker_set.due_at
    tick(1.1)
    assert_equal 1, @worker_set.children.size
  end

  def test_failed_boots_in_a_row_give_the_seat_up
    build_worker_set(workers: 1)
    2.times do
      child, theirs = @forker.asked.last
      theirs.write("!no database")
      lose(child, "exit 1")
      tick(5)
    end
    assert_predicate @worker_set, :all_given_up?
    assert_equal "no database", @worker_set.worker_slots.first.given_up
    assert_nil @worker_set.due_at
    assert_match(/worker 0 failed to boot 2 times in a row/, @output.string)
  end

  def test_others_serve_on_when_one_is_given_up
    build_worker_set(workers: 2)
    make_ready(@worker_set.children.last)
    2.times do
      lose(@worker_set.children.find { |child| child.index.zero? })
      tick(5)
    end
    refute_predicate @worker_set, :all_given_up?
    assert_predicate @worker_set, :complete?
  end

  # Two of one number may have one name among others.
  def test_a_number_is_free_when_its_worker_is_gone
    build_worker_set(workers: 2)
    leaving = @worker_set.children.last
    make_ready(leaving)
    assert @worker_set.shrink
    assert @worker_set.grow
    tick
    assert_equal [0, 1, 2], @worker_set.children.map(&:index)
    lose(leaving, "exit 0")
    assert @worker_set.grow
    tick
    assert_equal [0, 1, 2], @worker_set.children.map(&:index).sort
  end

  def test_growing_takes_the_lowest_free_number
    build_worker_set(workers: 2)
    assert @worker_set.grow
    tick
    assert_equal [0, 1, 2], @worker_set.children.map(&:index)
    Chaton::Supervisor::WorkerSet::EXTRA_WORKERS_MAX.times { @worker_set.grow }
    refute @worker_set.grow
  end

  def test_shrinking_stops_the_highest_and_keeps_the_last
    build_worker_set(workers: 2)
    assert @worker_set.shrink
    assert_equal [false, true], @worker_set.children.map(&:stopping?)
    lose(@worker_set.children.last, "exit 0")
    tick(5)
    assert_equal [0], @worker_set.children.map(&:index)
    refute @worker_set.shrink
  end

  def test_stopping_starts_nobody
    build_worker_set
    @worker_set.stop
    assert(@worker_set.children.all?(&:stopping?))
    @worker_set.children.dup.each { |child| lose(child, "exit 0") }
    tick(100)
    assert_empty @worker_set.children
    assert_nil @worker_set.due_at
    assert_match(/worker stopped/, @output.string)
  end

  def test_why_workers_ended_is_counted
    build_worker_set(workers: 6)
    stopped, late, hung, died, boot, left = @worker_set.children.dup
    [stopped, late, hung, died, left].each { |child| make_ready(child) }
    [stopped, late, left].each { |child| child.stop(0) }
    left.stop_now(0, purpose: :memory)
    [late, hung].each(&:kill)
    [stopped, late, hung, died, boot, left].each { |child| lose(child) }
    assert_equal({ asked: 2, restart: 0, memory: 0, died: 1, hung: 1, killed: 1, boot: 1 }, @worker_set.exits)
  end

  def test_a_boot_that_takes_too_long_is_ended
    build_worker_set(workers: 1)
    tick(11)
    assert_match(/within boot_timeout/, @output.string)
    assert_equal :killed, @forker.state
  end

  def test_a_fork_that_is_refused_is_tried_again_for_ever
    build_worker_set(workers: 1)
    @forker.define_singleton_method(:fork_worker) { |_child, _theirs| raise Errno::EAGAIN }
    lose(@worker_set.children.first)
    delays = Array.new(9) { |try| tick(10 * (try + 1)) && @output.string.lines.last[/restart_in_s=(\S+)/, 1].to_f }
    assert_equal [1.0, 2.0, *[4.0] * 7], delays
    assert_match(/fork failed: Resource temporarily unavailable/, @output.string)
    @forker.singleton_class.remove_method(:fork_worker)
    tick(100)
    make_ready(@worker_set.children.first)
    assert_predicate @worker_set, :complete?
  end

  def test_without_a_descriptor_the_slot_waits
    build_worker_set(workers: 1)
    make_ready(@worker_set.children.first)
    lose(@worker_set.children.first)
    OpenFiles.none { 3.times { |try| tick(10 * (try + 1)) } }
    assert_match(/fork failed: Too many open files/, @output.string)
    refute_predicate @worker_set, :all_given_up?
    tick(100)
    make_ready(@worker_set.children.first)
    assert_predicate @worker_set, :complete?
  end

  def test_without_a_descriptor_a_successor_ends_and_its_slot_serves_on
    build_worker_set(workers: 1)
    make_ready(@worker_set.children.first)
    slot = @worker_set.worker_slots.first
    successor = OpenFiles.none { @worker_set.start_successor(slot, @forker) }
    assert_predicate successor, :dead?
    assert_match(/Too many open files/, successor.reason)
    assert_nil slot.successor
    assert_predicate @worker_set, :complete?
  end

  def test_the_first_crash_names_compaction_once
    build_worker_set(workers: 2)
    [0, 1].each { |index| crash(index, "killed by SIGSEGV (core dumped)") }
    assert_equal 1, @output.string.scan("`memory { compact false }`").size
    build_worker_set(workers: 2)
    crash(0, "killed by SIGKILL")
    crash(1, "exit 1")
    refute_match(/compact/, @output.string)
    build_worker_set(workers: 1, memory: compacting(false))
    crash(0, "killed by SIGABRT")
    refute_match(/compact/, @output.string)
  end

  def test_only_an_early_crash_makes_the_code_be_loaded_without_compaction
    build_worker_set(workers: 1)
    @worker_set.children.first.forked(nil, Chaton::Supervisor::EventLoop.now_s - 61)
    crash(0, "killed by SIGSEGV")
    refute_predicate @worker_set, :compaction_suspected?
    assert_match(/Try `memory/, @output.string)
    build_worker_set(workers: 1)
    crash(0, "killed by SIGSEGV")
    assert_predicate @worker_set, :compaction_suspected?
    assert_match(/loaded again without it/, @output.string)
  end

  def crash(index, how)
    child = @worker_set.children.find { |one| one.index == index }
    make_ready(child)
    lose(child, how)
  end

  def test_nothing_is_due_while_the_board_is_full
    build_worker_set(workers: 1)
    scoreboard_slots = Chaton::Supervisor::WorkerSet.scoreboard_slots(1)
    (scoreboard_slots - 1).times { @worker_set.start_successor(@worker_set.worker_slots.first, @forker) }
    refute_predicate @worker_set, :room?
    refute @worker_set.grow
  end
end
