# frozen_string_literal: true

require_relative "ceiling_enforcer_case"
require "chaton/supervisor/phased_restart"

# The hard ceiling, and what becomes of ceilings while all workers are being replaced.
class CeilingEnforcerHardTest < CeilingEnforcerCase
  def test_no_worker_is_recycled_during_a_phased_restart
    build(limit: LIMIT)
    use(child(0), 120)
    3.times { look(held: true) }
    refute_predicate @ceilings, :busy?
    use(child(0), 160)
    look(held: true)
    assert_predicate @ceilings, :busy?, "the hard ceiling does not wait"
  end

  def test_the_hard_ceiling_stops_at_once_and_the_other_one_goes_on
    build(limit: LIMIT)
    old, other = @worker_set.children.dup
    @scoreboard.gauges[old.scoreboard_slot] = { live_slots: 12_345, allocator_active: 90 * MIB, heap_pages: 0 }
    use(old, 170, own: 140)
    use(other, 160)
    look
    assert_equal %w[QUIT], @signals[old]
    assert_predicate other, :ready?
    assert_match(/ERROR worker stopped at once: its memory reached 170 MiB \(hard ceiling 150 MiB\)/, @output.string)
    look
    assert_predicate other, :ready?, "one at a time"
    leave(old)
    assert_equal 1, status[:hard_total]
    assert_equal 0, status[:recycled_total]
    assert_match(/private="140 MiB".* live_slots=12345 allocator_active="90 MiB"\n/, @output.string)
    refute_match(/worker died/, @output.string)
  end

  def test_the_hard_ceiling_does_not_hold_up_a_phased_restart
    build(limit: LIMIT)
    old, other = @worker_set.children.dup
    phased_restart = roll
    use(old, 170)
    look(held: true)
    assert_predicate old, :stopping?
    refute_predicate @ceilings, :busy?, "its successor is on the way"
    lose(old, "exit 0")
    successor = @other.asked.last.first
    arrive(successor)
    phased_restart.tick(@now_s)
    assert_same successor, @worker_set.worker_slots.first.child
    assert_equal [0, 1], @other.asked.map { |child, _| child.index }, "the next one has its turn"
    assert_predicate other, :ready?
    assert_equal 1, status[:hard_total]
  end

  def test_a_phased_restart_begins_with_the_largest_need
    build(limit: LIMIT)
    use(child(1), 101)
    look(held: true)
    assert_equal [{ do: "trim" }], @commands[child(1)]
    assert_equal [false, true], @worker_set.children.map { |child| @ceilings.above_soft?(child) }
    roll
    assert_equal [1], @other.asked.map { |child, _| child.index }
  end

  def test_one_that_is_recycled_and_reaches_the_hard_ceiling_is_replaced_once
    build(limit: LIMIT)
    old = child(0)
    use(old, 120)
    2.times { look }
    use(old, 170)
    look
    assert_predicate old, :stopping?
    assert_equal 1, status[:recycling].size
    lose(old, "exit 0")
    tick
    arrive(newest)
    assert_equal 2, @worker_set.children.size
    refute_predicate @ceilings, :busy?
  end

  def test_one_above_the_hard_ceiling_before_it_is_ready_has_failed_to_boot
    build(limit: LIMIT)
    worker_slot = @worker_set.worker_slots.first
    lose(worker_slot.child)
    2.times do |round|
      tick(round * 1.5)
      kill_while_booting(worker_slot.child)
      look
      refute_predicate @ceilings, :busy?
    end
    assert_match(/\Amemory limit_hard 150 MiB is below what the application needs .*: 160 MiB; raise/,
                 worker_slot.given_up)
    assert_match(/failed to boot 2 times in a row and is not started again/, @output.string)
    assert_equal [0, 2], [status[:recycled_total], status[:hard_total]]
  end

  private

  # A phased restart whose code has been loaded.
  def roll
    @other = SupervisorFakes::Forker.new(1)
    first = @ceilings.method(:above_soft?)
    restart = Chaton::Supervisor::PhasedRestart.new(@worker_set, @other, log: @log, first: first)
    restart.tick(@now_s)
    restart
  end

  def kill_while_booting(child)
    signals = []
    child.define_singleton_method(:signal) { |name| signals << name }
    child.forked(@pid += 1, @now_s)
    use(child, 160)
    look
    assert_equal %w[KILL], signals
    lose(child)
  end
end
