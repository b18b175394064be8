# frozen_string_literal: true

require_relative "errors"
require_relative "shutdown"
require_relative "transaction"
require_relative "rails/errors"
require_relative "telemetry/running_work"
require_relative "telemetry/traces"

module Chaton
  # The base of the handlers that run jobs and batches on pool threads. Requests do without it: Rails' middleware wraps
  # them already, and it would cost time for each of them.
  #
  # At the end of a graceful stop, {#interrupt} raises an exception in work that still runs. It can hit nothing else: it
  # is raised only in threads that run work, and a thread whose work ends waits for an `interrupt` that has begun. Until
  # the first one this costs a look at a variable; holding such exceptions back around each unit of work would cost as
  # much as a small job does.
  #
  # A subclass defines SHUTDOWN, the class of that exception, SOURCE, its name for Rails, and these private methods:
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
    # A thread and the work that it runs, if any. A thread has one in each handler: a Hash of those that run something
    # would allocate memory for each unit of work.
    class WorkPlace
      attr_reader :thread
      attr_accessor :work

      def initialize(thread)
        @thread = thread
      end
    end
    private_constant :WorkPlace

    # Fiber-local key of a thread's places.
    PLACES = :chaton_places

    # @return [Native::Job, Native::Batch, nil] what this thread runs
    def self.current_work = Thread.current[PLACES]&.find(&:work)&.work

    def initialize(log:)
      @log = log
      @debug = log.level == :debug
      @pid = ::Process.pid
      @reloader = reloader
      @source = @reloader ? RailsErrors.source_for(@reloader.method(:wrap), self.class::SOURCE) : {}
      @places = []
      @place = :"chaton_place_#{object_id}"
      @lock = Mutex.new
      @interrupted = false
    end

    # Runs a unit of work. The work has an outcome afterwards, whatever user code does.
    def call(work)
      place = Thread.current[@place] || add_place
      started_s = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
      begin
        place.work = work
        @reloader ? @reloader.wrap(**@source) { run(work, started_s) } : run(work, started_s)
      rescue Exception => e # rubocop:disable Lint/RescueException -- Rails' reloader failed
        fail_work(work, e, nil, started_s)
      ensure
        # Open only while the thread is being killed.
        killed(work, started_s) if work.open?
        place.work = nil
        wait_for_interrupt if @interrupted
      end
    rescue Shutdown
      # It came when the work had ended.
      place.work = nil
    end

    # Raises SHUTDOWN in the work that was given up and still runs.
    #
    # @return [Array] this work
    def interrupt
      @lock.synchronize do
        # Before the work is read: a thread whose work ends later waits for the lock.
        @interrupted = true
        given_up = @places.map { |place| [place.thread, place.work] }.select { |_, work| work && given_up?(work) }
        given_up.each { |thread, _| thread.raise(self.class::SHUTDOWN) }.map(&:last)
      end
    end

    private

    def add_place
      place = WorkPlace.new(Thread.current)
      @lock.synchronize { @places = @places.select { |other| other.thread.alive? } << place }
      (Thread.current[PLACES] ||= []) << place
      Thread.current[@place] = place
    end

    # Handles the exception that an interrupt has raised in this thread, if any, before it could hit the next work.
    def wait_for_interrupt
      @lock.synchronize { nil }
      Thread.pass
    end

    # @param subject [Object, nil] what user code worked with, as far as it got
    def fail_work(work, error, subject, started_s)
      leave_child(work, error) if forked?
      Transaction.drop
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
