# frozen_string_literal: true

require_relative "process_client"

module Chaton
  # The Ruby half of streams: writes records in any process, and runs consumers with the records that the engine reads.
  #
  # This module holds the client of the process, because `Chaton.produce` is a module function.
  module Streams
    # File => the constants that it defines.
    {
      client: :Client, consumer_factory: :ConsumerFactory, deliveries: :Deliveries, loss_reporter: :LossReporter,
      deserializers: :Deserializers, failures: :Failures, finder: :Finder, handler: %i[Handler Instances],
      native_methods: %i[Batch Receipt Record], producing: :Producing, runtime: :Runtime, setup: :Setup,
      selection: :Selection, shutdown: :Shutdown, spool: %i[Spool Token], transaction: :Transaction
    }.each { |file, names| [*names].each { |name| autoload name, "chaton/streams/#{file}" } }

    extend ProcessClient

    @error_handlers = []
    @delivery_error_handlers = []
    @setup = Setup.new

    class << self
      # @return [Setup] what the application has set in this process
      # @private
      attr_reader :setup

      # Sets the broker and handlers, in an initializer.
      #
      # @example
      #   Chaton::Streams.configure do |config|
      #     config.broker "kafka+ssl://kafka:9093", username: "app", password: Rails.application.credentials.kafka
      #     config.error_handlers << ->(error, context) { Sentry.capture_exception(error, extra: context) }
      #   end
      # @yieldparam config [Setup]
      # @return [Setup]
      def configure
        yield setup if block_given?
        setup
      end

      # @param plan [Config::Plan]
      # @return [Config::Plan] with the broker that the application has set in Ruby
      # @private
      def settled(plan)
        given = setup.given
        given.empty? || plan.streams.nil? ? plan : plan.with(streams: plan.streams.with_log(given, plan.root))
      end

      # @return [Array<#call>] called with `(error, context)` when a consumer has failed
      attr_reader :error_handlers

      # @return [Array<#call>] the blocks of {on_delivery_error}
      attr_reader :delivery_error_handlers

      # @return [Native::Pool, nil] of a worker, which counts for the metrics
      # @private
      attr_reader :pool

      # Calls the block when records of `Chaton.produce` were not written and nobody has read their receipts: once a
      # second by topic and class of the error, on a thread of the process that produced them. It may be called
      # several times, and adds a block each time.
      #
      # @example
      #   Chaton::Streams.on_delivery_error { |error, context| Sentry.capture_exception(error, extra: context) }
      # @yieldparam error [StreamError] the error of the first record
      # @yieldparam context [Hash{Symbol=>Object}] `topic`, and the number of `records`
      def on_delivery_error(&block)
        raise ArgumentError, "on_delivery_error needs a block: on_delivery_error { |error, context| … }" unless block

        @delivery_error_handlers << block
        nil
      end

      # @return [#warn] the log of a worker; elsewhere {logger}
      # @private
      def server_logger = @server_log || logger

      # @return [Config::StreamsSettings]
      # @raise [ConfigError] when no streams are configured
      # @private
      def settings = configured(:streams, "streams { broker \"sqlite://storage/log.db\" }")

      # Called in a forked child that uses the client of its parent.
      #
      # @private
      def forked
        @client.delivery_errors.start if @client.is_a?(Client)
      end

      # Sets the plan of a process that has loaded its configuration already.
      #
      # @param plan [Config::Plan, nil]
      # @param forks [Boolean] whether this process forks workers and writes nothing itself: the first worker writes
      #   what it produces
      # @private
      def use(plan, forks: false)
        @lock.synchronize do
          @plan = plan
          @client = nil
          @forking_pid = forks ? ::Process.pid : nil
        end
      end

      # Replaces the spool of the parent process by a client, which writes the spooled records if it is the first.
      #
      # @param stale [Spool]
      # @return [Client]
      # @private
      def renew(stale)
        @lock.synchronize do
          return @client unless @client.equal?(stale)

          @client = make_client
          @handed_over = stale.hand_over(@client)
          @client
        end
      end

      # Called when a worker has started. The first one writes the records that were produced before the fork.
      #
      # @param log [Telemetry::Log, nil]
      # @param pool [Native::Pool, nil]
      # @private
      def started(log: nil, pool: nil)
        @server_log = log
        @pool = pool
        client = @client
        renew(client) if client.is_a?(Spool) && client.stale?
        return unless (receipt = @handed_over)

        @handed_over = nil
        log&.info("records that were produced before the workers were forked are written", refused: receipt.failed)
      end

      # Waits for records that are not written yet, at the end of a process.
      #
      # @param log [Telemetry::Log, nil]
      # @return [Integer] records that could not be written in time
      # @private
      def finish(log: nil)
        client = @client
        return 0 unless client.is_a?(Client)

        left = client.finish
        client.delivery_errors.finish
        log&.warn("records were not written in time and are lost", count: left) if left.positive?
        left
      end

      private

      def make_client
        settings = self.settings
        @forking_pid == ::Process.pid ? Spool.new(settings) : Client.for(settings)
      end
    end
  end
end
