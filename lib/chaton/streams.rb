# frozen_string_literal: true

require_relative "errors"

module Chaton
  # The Ruby half of streams: writing records from any process, and giving those that the engine reads to consumers.
  #
  # A process has one log and one producer, as it has one configuration; this module holds both, because
  # `Chaton.produce` has nobody to be handed them by.
  module Streams
    autoload :Client, "chaton/streams/client"
    autoload :Deserializers, "chaton/streams/deserializers"
    autoload :Entry, "chaton/streams/entry"
    autoload :Failures, "chaton/streams/failures"
    autoload :Finder, "chaton/streams/finder"
    autoload :Handler, "chaton/streams/handler"
    autoload :Instances, "chaton/streams/instances"
    autoload :Batch, "chaton/streams/native_parts"
    autoload :Producing, "chaton/streams/producing"
    autoload :Receipt, "chaton/streams/native_parts"
    autoload :Record, "chaton/streams/native_parts"
    autoload :Runtime, "chaton/streams/runtime"
    autoload :Selection, "chaton/streams/selection"
    autoload :Shutdown, "chaton/streams/shutdown"
    autoload :Spool, "chaton/streams/spool"
    autoload :Token, "chaton/streams/token"
    autoload :Transaction, "chaton/streams/transaction"

    @lock = Mutex.new
    @error_handlers = []

    class << self
      # @return [Array<#call>] called with `(error, context)` when a consumer has failed
      attr_reader :error_handlers

      # What `Chaton.produce` writes with. Made on first use: in a worker from the plan it runs with, in any other
      # process from CHATON_CONFIG or config/chaton.rb.
      #
      # @return [Client, Spool] a spool where workers are still to be forked
      # @raise [ConfigError] when no streams are configured
      def client
        @client || @lock.synchronize { @client ||= make }
      end

      # Puts another client in the place of the one there is.
      #
      # @param client [Client, nil] nil: a new one is made on the next use
      # @return [Client, nil] the former one
      def swap_client(client)
        @lock.synchronize do
          former = @client
          @client = client
          former
        end
      end

      # Makes a plan the one of this process: for a process that has loaded its configuration already.
      #
      # @param plan [Config::Plan, nil]
      # @param forks [Boolean] whether this process goes on to fork workers and writes nothing itself: what it
      #   produces is kept for the first of them
      # @return [void]
      def use(plan, forks: false)
        @lock.synchronize do
          @plan = plan
          @client = nil
          @forking_pid = forks ? ::Process.pid : nil
        end
      end

      # The client belonged to a parent process: puts a new one in its place, which sends what was kept for the
      # first worker.
      #
      # @param stale [Spool]
      # @return [Client]
      # @private
      def renew(stale)
        @lock.synchronize do
          return @client unless @client.equal?(stale)

          @client = make
          @handed_over = stale.hand_over(@client)
          @client
        end
      end

      # A worker has started: if it is the first, it sends what was produced before it was forked.
      #
      # @param log [Telemetry::Log, nil]
      # @return [void]
      def started(log: nil)
        client = @client
        renew(client) if client.is_a?(Spool) && client.stale?
        return unless (receipt = @handed_over)

        @handed_over = nil
        log&.info("records that were produced before the workers were forked are written", refused: receipt.failed)
      end

      # Waits for records that are not written yet; for a process that ends.
      #
      # @param log [Telemetry::Log, nil]
      # @return [Integer] records that could not be written in time
      def finish(log: nil)
        client = @client
        return 0 unless client.is_a?(Client)

        left = client.finish
        log&.warn("records were not written in time and are lost; see flush_timeout_s", count: left) if left.positive?
        left
      end

      # @return [#info, #warn, #error] what `logger` is in a consumer
      def logger
        @logger ||= default_logger
      end

      attr_writer :logger

      private

      def make
        settings = self.settings
        return Spool.new(settings) if @forking_pid == ::Process.pid

        Client.for(settings)
      end

      def settings
        @plan ||= Chaton.read_configuration
        streams = @plan.streams
        return streams if streams

        raise ConfigError, "no streams are configured: write `streams { broker \"log://storage/streams\" }` into " \
                           "#{@plan.config_file || "config/chaton.rb"} (or name the file in CHATON_CONFIG)"
      end

      def default_logger
        rails = ::Rails.logger if defined?(::Rails) && ::Rails.respond_to?(:logger)
        return rails if rails

        require "logger"
        ::Logger.new($stdout, progname: "chaton")
      end
    end
  end
end
