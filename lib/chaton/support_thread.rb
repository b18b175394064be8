# frozen_string_literal: true

require_relative "telemetry/running_work"

module Chaton
  # The one Ruby thread outside the pool. It waits for events from Rust: start threads, report late work, answer that
  # Ruby is alive, the supervisor is gone, a sibling died, a signal was left in the store.
  class SupportThread
    # Frames of a backtrace that go into the log.
    BACKTRACE_LINES_MAX = 40

    # @param on [Hash{Symbol=>#call}] the reaction to each event, called with the event's argument: :orphan (once, when
    #   the supervisor is gone), :recover (JSON about a dead sibling), :signal (its name), :order (JSON of a command),
    #   :collections (their summaries can be read), :idle (nothing has run for the time that was asked for) and
    #   :full_wanted (Ruby has wanted a full collection for long)
    def initialize(native_pool, pool, log:, on:)
      @native_pool = native_pool
      @pool = pool
      @log = log
      @on = on
    end

    def start
      # Ruby kills all threads at its exit and would wait for one that starts then.
      at_exit { @stopping = true }
      start_thread
      self
    end

    def stop
      @stopping = true
      @native_pool.stop_events
      @thread&.join
    end

    # Logs what runs now, each with its thread's backtrace.
    def report_running(title)
      @native_pool.running.each { |work| report(title, work) }
    end

    private

    # A thread that is killed before its first line runs no `ensure`: it begins with all interrupts held back.
    def start_thread
      @thread = Thread.handle_interrupt(Object => :never) { Thread.new { run } }
      @thread.name = "chaton support"
    end

    # Code of the application may kill all threads that it did not start. Without this one no further pool thread would
    # ever start.
    def run
      Thread.handle_interrupt(Object => :immediate) { watch }
    ensure
      unless @stopping
        @log.warn("the support thread was killed; another one takes its place")
        start_thread
      end
    end

    def watch
      loop do
        name, argument = @native_pool.next_event
        break if name == :stop

        handle(name, argument)
      rescue StandardError => e
        @log.exception(e, "the support thread could not handle #{name}")
      end
    end

    def handle(name, argument)
      case name
      when :spawn then @pool.spawn(argument)
      when :ping then @native_pool.pong
      when :late then report_late(*argument)
      else @on.fetch(name).call(argument)
      end
    end

    def report_late(role, id)
      work = @native_pool.running.find { |running| running[:role] == role && running[:id] == id }
      return report("request is late: answered 503, its thread goes on", work) if work

      @log.warn("request was late and ended just now", request: id)
    end

    def report(title, work)
      thread = @pool.thread(work[:thread])
      backtrace = thread&.backtrace || []
      @log.warn(title, **work.slice(:what, :age_ms, :thread, :tid, :cpu_ms, :wait_channel), **context(thread, work),
                backtrace: backtrace.first(BACKTRACE_LINES_MAX))
    end

    # Rails may have made a request's id, which Rust does not know.
    def context(thread, work)
      running = thread && Telemetry::RunningWork.of(thread)
      found = running&.context || {}
      found.empty? ? work.fetch(:context, {}).transform_keys(&:to_sym) : found
    end
  end
end
