# frozen_string_literal: true

require_relative "telemetry/running_work"

module Chaton
  # The Ruby threads of a worker that take work from the native pool and run it. Rust decides how many are awake, when
  # one more is started and when one ends.
  class Pool
    # Tells of something that goes on and is tried again all the time: a line a minute, with the number since the last.
    class Rarely
      EVERY_S = 60

      def initialize
        @count = 0
        @due_at_s = -EVERY_S
      end

      # @yieldparam count [Integer] how often it has happened since the last line
      def tell(more = 1)
        @count += more
        now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        return if now_s < @due_at_s

        yield @count
        @count = 0
        @due_at_s = now_s + EVERY_S
      end
    end

    # @param handler [#call] runs one unit of work, and rescues errors of user code
    def initialize(native_pool, handler, log:)
      @native_pool = native_pool
      @handler = handler
      @log = log
      @threads = {}
      @refusals = Rarely.new
      @ends = Rarely.new
    end

    def spawn(count)
      started = 0
      count.times do
        # Without the interrupts held back, one that is killed before its first line would never be counted out.
        Thread.handle_interrupt(Object => :never) { Thread.new { run } }
        started += 1
      end
    rescue ThreadError => e
      @native_pool.spawn_failed(count - started)
      warn_of_refusals(count - started, e.message)
    end

    # @param index [Integer] its `thread` in {Native::Pool#running}
    # @return [Thread, nil] the thread with this index
    def thread(index)
      @threads[index]
    end

    # Waits for all threads to end. They end once the native pool is closed and empty.
    #
    # @return [Boolean] whether all ended in time
    def join(timeout_s)
      deadline = now + timeout_s
      @threads.values.all? { |thread| thread.join([deadline - now, 0].max) }
    end

    private

    def warn_of_refusals(count, reason)
      @refusals.tell(count) do |refused|
        @log.warn("the operating system refuses threads; work waits for those that there are, and more are tried " \
                  "every 5 s: raise the limit on processes (pids.max, LimitNPROC) or lower `threads`",
                  refused: refused, reason: reason)
      end
    end

    # The handler rescues what user code raises, so this is an error of ours, or of what was installed: a native library
    # of another version.
    def report_end(error)
      @ends.tell do |ended|
        @log.exception(error, "a thread that runs work has ended; another one follows", ended: ended)
      end
    end

    def run
      pool_thread = @native_pool.enter
      index = pool_thread.index
      Thread.current.name = "chaton pool #{index}"
      Thread.current.report_on_exception = false
      @threads[index] = Thread.current
      Thread.handle_interrupt(Object => :immediate) { serve(pool_thread) }
    rescue StandardError, ScriptError => e
      report_end(e)
    ensure
      # Also when user code killed the thread. The native pool then asks for another one.
      @threads.delete(index) if @threads[index].equal?(Thread.current)
      pool_thread ? pool_thread.leave : @native_pool.spawn_failed(1)
    end

    def serve(pool_thread)
      running = Telemetry::RunningWork.begin
      pool_thread.each_work do |work|
        running.work = work
        @handler.call(work)
        # A parked thread must not keep the last request alive.
        running.work = nil
      end
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
