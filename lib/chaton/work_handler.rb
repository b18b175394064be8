# frozen_string_literal: true

require_relative "errors"
require_relative "shutdown"
require_relative "telemetry/running_work"
require_relative "telemetry/traces"

module Chaton
  # The base of the handlers that run jobs and batches on pool threads. Requests do without it: Rails' middleware wraps
  # them already, and it would cost time for each of them.
  #
  # At the end of a graceful stop, {#interrupt} raises an exception in work that still runs. It can hit nothing else:
  # pool threads hold such exceptions back except here, and a thread leaves the list of those that run work under the
  # lock that `interrupt` holds.
  #
  # A subclass defines SHUTDOWN, the class of that exception, and these private methods:
  #
  # - `run(work, started_s)` runs the work and gives it its outcome; it rescues errors of user code with `fail_work`, so
  #   that Rails' wrapping does not see them
  # - `handle_failure(work, error, subject, seconds)` gives failed work its outcome
  # - `run_again(work, error)` gives it back, because `handle_failure` itself failed
  # - `killed(work, started_s)` is called for open work whose thread is being killed
  # - `given_up?(work)` tells, once the engine has given up what runs, whether this work is part of it
  # - `facts(work)` describes it in the log
  # - `forget_classes` empties caches before Rails reloads code
  class WorkHandler
    # For `Thread.handle_interrupt`.
    INTERRUPTIBLE = { Shutdown => :immediate }.freeze

    # @param log [Telemetry::Log]
    def initialize(log:)
      @log = log
      @debug = log.level == :debug
      @pid = ::Process.pid
      @reloader = reloader
      @running = {}.compare_by_identity
      @lock = Mutex.new
    end

    # Runs a unit of work. The work has an outcome afterwards, whatever user code does.
    def call(work)
      started_s = monotonic_s
      interruptible(work) do
        @reloader ? @reloader.wrap { run(work, started_s) } : run(work, started_s)
      end
    rescue Exception => e # rubocop:disable Lint/RescueException -- Rails' reloader failed
      fail_work(work, e, nil, started_s)
    ensure
      # Open only while the thread is being killed.
      killed(work, started_s) if work.open?
    end

    # Raises SHUTDOWN in the work that was given up and still runs.
    #
    # @return [Array] this work
    def interrupt
      @lock.synchronize do
        given_up = @running.select { |_, work| given_up?(work) }
        given_up.each_key { |thread| thread.raise(self.class::SHUTDOWN) }.values
      end
    end

    private

    def interruptible(work, &)
      @running[Thread.current] = work
      Thread.handle_interrupt(INTERRUPTIBLE, &)
    ensure
      @lock.synchronize { @running.delete(Thread.current) }
      drop_interrupt if Thread.pending_interrupt?
    end

    # It came when the work had ended, and must not hit the next one.
    def drop_interrupt
      Thread.handle_interrupt(INTERRUPTIBLE) { nil }
    rescue Shutdown
      nil
    end

    # @param subject [Object, nil] what user code worked with, as far as it got
    def fail_work(work, error, subject, started_s)
      leave_child(work, error) if forked?
      running = Telemetry::RunningWork.of(Thread.current)
      running.error = error if running
      Telemetry::Traces.failed(error)
      handle_failure(work, error, subject, monotonic_s - started_s)
    rescue Exception => e # rubocop:disable Lint/RescueException -- work is never left open
      run_again(work, e)
    end

    # @return [Boolean] whether this process is a child that user code forked
    def forked? = ::Process.pid != @pid

    # Ends a child that user code forked without a block and that returned from it. It is no worker, and its parent
    # gives the work its outcome, so it reports nothing.
    def leave_child(work, error)
      ::Process.exit!(error.status) if error.is_a?(SystemExit)
      # The child ran user code to its end, and only its attempt to give the outcome failed.
      ::Process.exit!(0) if error.is_a?(ForkedError)

      @log.exception(error, self.class::CHILD_FAILED, **facts(work))
      ::Process.exit!(1)
    end

    def log_done(title, work, started_s, **more)
      @log.debug(title, **facts(work), **more, seconds: (monotonic_s - started_s).round(3))
    end

    # Rails' reloader also runs the executor. Reloaded code defines new classes of the same names.
    def reloader
      return unless defined?(::Rails.application) && ::Rails.application

      # Rails runs the block with another self.
      forget = method(:forget_classes)
      ::Rails.application.reloader.tap { |reloader| reloader.before_class_unload { forget.call } }
    end

    def monotonic_s = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
  end
end
