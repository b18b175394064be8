# frozen_string_literal: true

require "test_helper"
require "chaton/pool"
require "chaton/support_thread"

# Code of an application may kill every thread that it did not start, also one that has not begun.
class KilledThreadsTest < Minitest::Test
  # Rust's side: events come when the test sends them, and work never does.
  class NativePool
    PoolThread = Struct.new(:index, :left) do
      def each_work = sleep
      def leave = left << index
    end

    attr_reader :entered, :left

    def initialize
      @events = Queue.new
      @entered = Queue.new
      @left = Queue.new
    end

    def next_event = @events.pop
    def stop_events = @events << :stop
    def enter = PoolThread.new(@entered.size, @left).tap { |thread| @entered << thread }
    def spawn_failed(_count) = flunk
  end

  # Notes the lines.
  class Lines < Queue
    def warn(line, **) = push(line)
    def exception(error, line, **) = push("#{line}: #{error.message.lines.first}")
  end

  ROUNDS = 20

  def test_a_support_thread_that_is_killed_before_it_begins_is_replaced
    lines = Lines.new
    ROUNDS.times do
      support = Chaton::SupportThread.new(NativePool.new, nil, log: lines, on: {}).start
      support.instance_variable_get(:@thread).kill
      assert_match(/killed; another one takes its place/, lines.pop)
      support.stop
    end
    assert_empty lines
  end

  # Refuses all threads.
  class Refused
    attr_reader :failed

    def spawn_failed(count) = @failed = @failed.to_i + count
  end

  def test_threads_that_the_system_refuses_are_told_of_once_a_minute
    lines = Lines.new
    pool = Chaton::Pool.new(native_pool = Refused.new, nil, log: lines)
    refuse = ->(*) { raise ThreadError, "can't create Thread: Resource temporarily unavailable" }
    Thread.stub(:new, refuse) { 5.times { pool.spawn(2) } }
    assert_equal [10, 1], [native_pool.failed, lines.size]
    assert_match(/refuses threads/, lines.pop)
  end

  def test_a_pool_thread_that_ends_by_an_error_of_ours_is_told_of_once_a_minute
    lines = Lines.new
    native_pool = NativePool.new
    # As in a native library of another version.
    def native_pool.enter = super.tap { |thread| thread.singleton_class.undef_method(:each_work) }
    pool = Chaton::Pool.new(native_pool, nil, log: lines)
    ROUNDS.times do
      pool.spawn(1)
      native_pool.left.pop
    end
    assert_equal 1, lines.size
    assert_match(/a thread that runs work has ended.*each_work/m, lines.pop)
  end

  def test_a_pool_thread_that_is_killed_before_it_begins_leaves
    native_pool = NativePool.new
    pool = Chaton::Pool.new(native_pool, nil, log: nil)
    ROUNDS.times do |round|
      before = Thread.list
      pool.spawn(1)
      (Thread.list - before).each(&:kill)
      assert_equal round, native_pool.left.pop
    end
    assert_equal ROUNDS, native_pool.entered.size
  end
end
