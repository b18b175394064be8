# frozen_string_literal: true

require_relative "../errors"
require_relative "../streams"
require_relative "../consumer"

module Chaton
  module Streams
    # Runs a batch. Whatever the consumer does, the batch ends: done, failed or abandoned.
    class Handler
      # The hook of each kind of notice.
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
        @factories = {}
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
        fail(batch, e, nil, started_s)
      ensure
        @running.delete(Thread.current)
        # It is still open only when the thread is being killed.
        abandon_killed(batch) if ::Process.pid == @pid && batch.open?
      end

      # @return [Array<Thread>] threads that run a consumer
      def running = @running.keys

      # @return [Array<Integer>] routes whose consumers define `eof`
      def of_eof = @routes.each_index.select { |route| factory(route).eof? }

      private

      def run(batch, started_s)
        kind = batch.kind
        return notify(batch, HOOKS.fetch(kind)) unless kind == :records

        factory = factory(batch.route)
        given = batch
        instance = @instances.of(batch, factory)
        given = factory.prepare(batch, instance)
        instance.consume(given) unless given.empty?
        raise ForkedError, "a child came out of the consumer" if ::Process.pid != @pid

        # The consumer may have ended it.
        batch.done if batch.open?
        log_done(batch, factory, started_s) if @debug
      rescue Exception => e # rubocop:disable Lint/RescueException -- `exit` in a consumer must not end the worker
        fail(batch, e, given, started_s)
      end

      def factory(route)
        @factories[route] ||= ConsumerFactory.new(@routes.fetch(route), limits: @limits, finder: @finder)
      end

      # A hook that fails is logged.
      def notify(batch, hook)
        instances = hook == :eof ? [@instances.of(batch, factory(batch.route))] : @instances.remove(batch)
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

      def fail(batch, error, given, started_s)
        leave_child(batch, error) if ::Process.pid != @pid
        return @log.exception(error, "a consumer failed after it had ended its batch itself") unless batch.open?
        return batch.abandon if Shutdown.behind?(error)

        @failures.fail(batch, error, given, consumer: name_of(batch), seconds: monotonic_s - started_s)
      rescue Exception => e # rubocop:disable Lint/RescueException -- a batch is never left open
        @log.exception(e, "a failed batch could not be ended as failed; it is handed out again", batch: batch.describe)
        batch.abandon if batch.open?
      end

      # Ends a child that a consumer forked without a block and that returned from the consumer. It is not a worker,
      # and its parent ends the batch.
      def leave_child(batch, error)
        ::Process.exit!(error.status) if error.is_a?(SystemExit)
        # The child ran the consumer to its end.
        ::Process.exit!(0) if error.is_a?(ForkedError)

        @log.exception(error, "a child that a consumer forked failed; the batch itself goes on", batch: batch.describe)
        ::Process.exit!(1)
      end

      def abandon_killed(batch)
        @log.warn("a thread was killed while it ran a batch, which is handed out again", consumer: name_of(batch),
                                                                                         batch: batch.describe)
        batch.abandon
      end

      def name_of(batch) = @factories[batch.route]&.name || @routes[batch.route]&.consumer.to_s

      def log_done(batch, factory, started_s)
        @log.debug("batch done", consumer: factory.name, batch: batch.describe, records: batch.size,
                                 seconds: (monotonic_s - started_s).round(3))
      end

      # Rails' reloader also runs the executor. Reloaded code defines new classes of the same names.
      def reloader
        return unless defined?(::Rails.application) && ::Rails.application

        # Rails runs the block with another self.
        kept = [@factories, @instances]
        ::Rails.application.reloader.tap { |reloader| reloader.before_class_unload { kept.each(&:clear) } }
      end

      def monotonic_s = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
