# frozen_string_literal: true

require_relative "../errors"
require_relative "../streams"
require_relative "../consumer"

module Chaton
  module Streams
    # Runs one batch of a partition. Whatever the consumer does, the batch is ended: done, failed or given back.
    class Handler
      # What a batch that is no batch calls.
      HOOKS = { revoked: :revoked, shutdown: :shutdown, end: :eof }.freeze

      # @param settings [Config::StreamsSettings]
      # @param log [Telemetry::Log]
      # @param finder [Finder]
      def initialize(settings, log:, finder: Finder.new)
        @routes = settings.routes
        @limits = Transaction::Limits.of(settings)
        @log = log
        @finder = finder
        @failures = Failures.new(log: log)
        @debug = log.level == :debug
        @entries = {}
        @instances = Instances.new
        @running = {}.compare_by_identity
        @pid = ::Process.pid
        @reloader = reloader
      end

      # @param batch [Native::Batch]
      def call(batch)
        @running[Thread.current] = true
        started_s = monotonic_s
        @reloader ? @reloader.wrap { run(batch, started_s) } : run(batch, started_s)
      rescue Exception => e # rubocop:disable Lint/RescueException -- Rails' own wrapping failed
        settle_failed(batch, e, nil, started_s)
      ensure
        @running.delete(Thread.current)
        # Still open only when the thread is being killed.
        settle_killed(batch) if ::Process.pid == @pid && batch.open?
      end

      # @return [Array<Thread>] threads that are in a consumer
      def running = @running.keys

      # @return [Array<Integer>] routes whose consumers want to hear of the end of a partition
      def of_eof = @routes.each_index.select { |route| entry(route).eof? }

      private

      def run(batch, started_s)
        kind = batch.kind
        return notify(batch, HOOKS.fetch(kind)) unless kind == :records

        entry = entry(batch.route)
        given = batch
        instance = @instances.of(batch, entry)
        given = entry.give(batch, instance)
        instance.consume(given) unless given.empty?
        raise ForkedError, "a child came out of the consumer" if ::Process.pid != @pid

        # It may have been ended in there.
        batch.done if batch.open?
        log_done(batch, entry, started_s) if @debug
      rescue Exception => e # rubocop:disable Lint/RescueException -- `exit` in a consumer must not end the worker
        settle_failed(batch, e, given, started_s)
      end

      def entry(route)
        @entries[route] ||= Entry.new(@routes.fetch(route), limits: @limits, finder: @finder)
      end

      # A hook that fails is logged; what it was told of has happened all the same.
      def notify(batch, hook)
        instances = hook == :eof ? [@instances.of(batch, entry(batch.route))] : @instances.let_go(batch)
        instances.each do |instance|
          instance.batch = batch
          instance.public_send(hook)
        rescue Exception => e # rubocop:disable Lint/RescueException -- one hook is not the worker
          leave_child(batch, e) if ::Process.pid != @pid
          @failures.of_hook(batch, e, "#{instance.class.name}##{hook}")
        end
      ensure
        batch.done if ::Process.pid == @pid && batch.open?
      end

      def settle_failed(batch, error, given, started_s)
        leave_child(batch, error) if ::Process.pid != @pid
        return @log.exception(error, "a consumer failed after it had ended its batch itself") unless batch.open?
        return batch.abandon if Shutdown.behind?(error)

        @failures.settle(batch, error, given, consumer: name_of(batch), seconds: monotonic_s - started_s)
      rescue Exception => e # rubocop:disable Lint/RescueException -- a batch is never left open
        @log.exception(e, "a failed batch could not be settled; it is given again", batch: batch.describe)
        batch.abandon if batch.open?
      end

      # A child that a consumer forked without a block came back out of it. It is no worker, and what becomes of the
      # batch is its parent's business: nobody is told that it failed.
      def leave_child(batch, error)
        ::Process.exit!(error.status) if error.is_a?(SystemExit)
        # It went through to the consumer's end.
        ::Process.exit!(0) if error.is_a?(ForkedError)

        @log.exception(error, "a child that a consumer forked failed; the batch itself goes on", batch: batch.describe)
        ::Process.exit!(1)
      end

      def settle_killed(batch)
        @log.warn("a thread was killed while it ran a batch, which is given again", consumer: name_of(batch),
                                                                                    batch: batch.describe)
        batch.abandon
      end

      def name_of(batch) = @entries[batch.route]&.name || @routes[batch.route]&.consumer.to_s

      def log_done(batch, entry, started_s)
        @log.debug("batch done", consumer: entry.name, batch: batch.describe, records: batch.size,
                                 seconds: (monotonic_s - started_s).round(3))
      end

      # Rails' reloader also runs the executor. Code that is loaded anew brings new classes of the same names.
      def reloader
        return unless defined?(::Rails.application) && ::Rails.application

        # Rails runs the block in an object of its own.
        kept = [@entries, @instances]
        ::Rails.application.reloader.tap { |reloader| reloader.before_class_unload { kept.each(&:clear) } }
      end

      def monotonic_s = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
