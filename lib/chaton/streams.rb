# frozen_string_literal: true

require_relative "process_client"

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

    extend ProcessClient

    @error_handlers = []

    class << self
      # @return [Array<#call>] called with `(error, context)` when a consumer has failed
      attr_reader :error_handlers

      # Makes a plan the one of this process: for a process that has loaded its configuration already.
      #
      # @param plan [Config::Plan, nil]
      # @param forks [Boolean] whether this process goes on to fork workers and writes nothing itself: what it
      #   produces is kept for the first of them
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

          @client = make_client
          @handed_over = stale.hand_over(@client)
          @client
        end
      end

      # A worker has started: if it is the first, it sends what was produced before it was forked.
      #
      # @param log [Telemetry::Log, nil]
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

      private

      def make_client
        settings = configured(:streams, "streams { broker \"log://storage/streams\" }")
        @forking_pid == ::Process.pid ? Spool.new(settings) : Client.for(settings)
      end
    end
  end
end
