# frozen_string_literal: true

require "test_helper"
require "chaton/supervisor/memory_monitor"
require_relative "memory_fakes"

class MemoryWatchTest < Minitest::Test
  include SupervisorFakes
  include MemoryFakes

  OURS = 7

  def setup
    build_worker_set(workers: 2)
    @kernel = Kernel.new
    @kernel.set(OURS, 30)
    @worker_set.children.each_with_index do |child, index|
      child.forked(100 + index, now_s)
      make_ready(child)
      @kernel.set(100 + index, 20, rss: 60)
    end
    @now_s = now_s
  end

  def test_without_ceilings_it_never_wants_a_turn
    watch
    assert_nil @monitor.due_at
    look
    refute_predicate @monitor, :updated?
    assert_empty @kernel.asked
  end

  def test_without_ceilings_the_status_is_read_when_asked_for_and_not_again_at_once
    watch
    assert_equal 20, @monitor.figures(child(0), @now_s)[:pss]
    @kernel.set(100, 25, rss: 60)
    assert_equal 20, @monitor.figures(child(0), @now_s + 1)[:pss]
    assert_equal 25, @monitor.figures(child(0), @now_s + 2.1)[:pss]
    assert_equal 30 + 25 + 20, @monitor.total_now(@now_s + 2.1)
  end

  def test_a_worker_is_read_as_soon_as_it_is_ready
    watch(limit: 1000)
    assert_operator @monitor.due_at, :<=, now_s
    look
    assert_equal @worker_set.children, @monitor.newcomers
    assert_empty @monitor.newcomers
    assert_equal 20, @monitor.memory_of(child(0)).fresh[:private]
    assert_in_delta @now_s + 2, @monitor.due_at, 0.01
  end

  def test_exact_figures_are_read_where_they_could_matter_only
    watch(limit: 100)
    look
    @kernel.set(100, 70, rss: 79)
    @kernel.set(101, 70, rss: 80)
    @kernel.asked.clear
    look
    assert_predicate @monitor, :updated?
    refute_predicate @monitor, :updated?
    assert_equal [101], @kernel.asked
    assert_nil @monitor.memory_of(child(0)).usage
    assert_equal 70, @monitor.memory_of(child(1)).usage[:pss]
  end

  def test_the_sum_is_exact_close_to_the_ceiling_of_all
    watch(limit_tree: 250)
    look
    assert_equal 30 + 60 + 60, @monitor.total, "resident memory shows that it is far"
    @kernel.set(100, 80, rss: 120)
    look
    assert_equal 30 + 80 + 20, @monitor.total
  end

  def test_a_container_that_fills_up_makes_it_look_at_all
    @kernel.group = { limit: 1000, current: 100 }
    watch(container: 1000)
    look
    @kernel.asked.clear
    look
    assert_empty @kernel.asked
    @kernel.group = { limit: 1000, current: 800 }
    look
    assert_equal [OURS, 100, 101], @kernel.asked.sort
    assert_equal 800, @monitor.container[:current]
  end

  def test_how_fast_a_worker_grows_is_seen_from_afar
    watch(limit: 100)
    look
    @kernel.set(100, 70, rss: 79)
    look
    @kernel.set(100, 99, rss: 110)
    look
    assert_in_delta 10.0, @monitor.memory_of(child(0)).rise, 0.01
    assert_in_delta 99 + 40, @monitor.ahead(child(0)), 1
    @kernel.set(100, 95, rss: 110)
    look
    assert_equal 95, @monitor.ahead(child(0)), "one that shrinks will not go on for ever"
  end

  def test_two_readings_in_a_row_are_no_rise
    watch(limit: 100)
    @kernel.set(100, 80)
    look
    @kernel.set(100, 85)
    @monitor.memory_of(child(0)).read_at_s = 0.0
    @monitor.figures(child(0), @now_s + 0.01)
    assert_equal 85, @monitor.ahead(child(0)), "taken for a growth of 500 bytes a second"
    @kernel.set(100, 90)
    look
    assert_in_delta 5.0, @monitor.memory_of(child(0)).rise, 0.01
  end

  def test_a_kernel_without_parts_goes_by_the_whole
    watch(limit: 100)
    @kernel.define_singleton_method(:process) { |_pid| nil }
    look
    assert_equal({ rss: 60, pss: 60, private: 60, shared: 0, swap: 0 }, @monitor.memory_of(child(0)).fresh)
  end

  def test_an_ended_worker_is_forgotten
    watch(limit: 100)
    look
    gone = child(0)
    lose(gone)
    look
    assert_nil @monitor.memory_of(gone).fresh
  end

  def test_an_ended_worker_is_forgotten_without_ceilings
    watch
    gone = child(0)
    @monitor.figures(gone, @now_s)
    lose(gone)
    @monitor.total_now(@now_s)
    refute_includes @monitor.instance_variable_get(:@memories).keys, gone
  end

  private

  def watch(container: nil, **given)
    limits = limits_of(**given, container: container)
    @monitor = Chaton::Supervisor::MemoryMonitor.new(@worker_set, limits, every_s: 2.0, parents: -> {
                                                                                                   [OURS]
                                                                                                 }, kernel: @kernel)
  end

  def look
    @monitor.tick(@now_s += 2)
    @monitor.instance_variable_set(:@next_at_s, @now_s + 2) if @monitor.due_at
  end

  def child(index) = @worker_set.children[index]

  def now_s = Chaton::Supervisor::EventLoop.now_s
end
