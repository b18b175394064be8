# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/ceilings"
require "chaton/supervisor/memory_watch"
require_relative "memory_fakes"

class CeilingsTest < Minitest::Test
  include SupervisorFakes
  include MemoryFakes

  LIMIT = 100 * MIB

  def setup
    @kernel = Kernel.new
    @pid = 1000
    @orders = Hash.new { |all, child| all[child] = [] }
    @now_s = Chaton::Supervisor::EventLoop.now_s
  end

  def test_it_trims_first_looks_again_and_recycles
    build(limit: LIMIT)
    old = child(0)
    grow(old)
    assert_equal [{ do: "trim" }], @orders[old]
    refute_predicate @ceilings, :busy?
    look
    assert_predicate @ceilings, :busy?
    assert_predicate old, :ready?
    arrive(newest)
    leave(old)
    assert_equal 1, status[:recycled_total]
    assert_equal 0, status[:hard_total]
    assert_match(/worker recycled: its memory reached 104 MiB \(soft ceiling 100 MiB\)  worker=0/, @output.string)
    assert_match(/soft ceiling 100 MiB/, @ceilings.of(newest, @now_s)[:reason])
    assert_equal 1, @ceilings.of(newest, @now_s)[:recycles]
  end

  def test_what_trimming_gave_back_is_enough
    build(limit: LIMIT)
    grow(child(0))
    use(child(0), 80)
    3.times { look }
    refute_predicate @ceilings, :busy?
    assert_equal 1, @orders[child(0)].size
  end

  def test_never_two_at_once
    build(limit: LIMIT)
    both = @fleet.children.dup
    both.each { |child| use(child, 130) }
    3.times { look }
    assert_equal 3, @fleet.children.size
    assert_equal 1, status[:recycling].size
    arrive(newest)
    3.times { look }
    assert_equal 3, @fleet.children.size, "the first one has not left yet"
    leave(both.find(&:stopping?))
    3.times { look }
    assert_equal 3, @fleet.children.size
    assert(both.all? { |child| child.dead? || child.ready? })
  end

  def test_nobody_is_recycled_during_a_phased_restart
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
    old, other = @fleet.children.dup
    @board.gauges[old.slot] = { live_slots: 12_345, allocator_active: 90 * MIB, heap_pages: 0 }
    signals = []
    old.define_singleton_method(:signal) { |name| signals << name }
    use(old, 170, own: 140)
    use(other, 160)
    look
    assert_equal %w[QUIT], signals
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

  def test_a_successor_that_fails_is_answered_with_a_pause
    build(limit: LIMIT)
    old = child(0)
    use(old, 120)
    2.times { look }
    lose(newest, "exit 1")
    look
    assert_match(/recycling abandoned: the new worker did not come up; the old one goes on serving.*next_in_s=5.0/,
                 @output.string)
    assert_predicate old, :ready?
    2.times { look }
    assert_equal 2, @fleet.children.size
    2.times { look }
    assert_equal 3, @fleet.children.size, "after the pause it is tried again"
  end

  def test_first_workers_that_do_not_fit_are_refused_after_a_trim
    build(limit: LIMIT, size: 110, starting: true)
    assert_predicate @ceilings, :doubts?
    assert_equal [{ do: "trim" }], @orders[child(0)]
    look(starting: true)
    assert_match(/\Amemory limit 100 MiB is below what the application needs after loading: 110 MiB/, @ceilings.refusal)
  end

  def test_first_workers_that_shrink_are_not_refused
    build(limit: LIMIT, size: 110, starting: true)
    @fleet.children.each { |child| use(child, 70) }
    look(starting: true)
    refute_predicate @ceilings, :doubts?
    assert_nil @ceilings.refusal
  end

  def test_a_later_one_that_does_not_fit_is_left_alone_for_a_while
    build(limit: LIMIT)
    old = child(0)
    use(old, 120)
    2.times { look }
    arrive(newest, size: 110)
    leave(old)
    20.times { look }
    assert_equal 2, @fleet.children.size
    assert_match(/above its soft ceiling as soon as it is ready.*soft="100 MiB" not_before_s=60.0/, @output.string)
    15.times { look }
    assert_equal 3, @fleet.children.size
  end

  def test_too_little_for_all_is_said_once
    build(limit_tree: 100 * MIB, size: 60)
    3.times { look }
    assert_equal 1, @output.string.scan("none has grown since it was ready").size
    refute_predicate @ceilings, :busy?
  end

  def test_without_ceilings_the_status_has_figures
    build
    assert_equal 40 * MIB, @ceilings.of(child(0), @now_s)[:pss]
    assert_equal 80 * MIB, status[:total]
    assert_nil status[:limit]
  end

  private

  def build(size: 40, starting: false, **given)
    build_fleet(workers: 2)
    limits = limits_of(**given)
    @watch = Chaton::Supervisor::MemoryWatch.new(@fleet, limits, every_s: 2.0, parents: -> { [] }, kernel: @kernel)
    @ceilings = Chaton::Supervisor::Ceilings.new(@fleet, limits, watch: @watch, board: @board, log: @log)
    @fleet.children.each { |child| arrive(child, size: size, starting: starting) }
  end

  # A child becomes ready.
  def arrive(child, size: 40, **known)
    child.forked(@pid += 1, @now_s)
    orders = @orders[child]
    child.define_singleton_method(:signal) { |_name| nil }
    child.define_singleton_method(:order) { |order| orders << order }
    use(child, size)
    make_ready(child)
    turn(**known)
  end

  def leave(child)
    lose(child, "exit 0")
    turn
    tick
    arrive(newest) if newest.state == :asked
  end

  def use(child, pss, own: pss)
    @kernel.set(child.pid, pss * MIB, own: own * MIB)
  end

  # Slowly, so that there is time to see whether trimming helps.
  def grow(child)
    [89, 104].each do |size|
      use(child, size)
      look
    end
  end

  # The next look is due.
  def look(**known)
    @now_s += 2
    turn(**known)
  end

  def turn(**known)
    @watch.tick(@now_s)
    @ceilings.steer(@now_s, **known)
  end

  def status = @ceilings.to_h(@now_s)
  def child(index) = @fleet.children[index]
  def newest = @origin.asked.last.first
end
