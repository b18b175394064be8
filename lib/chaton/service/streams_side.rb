# frozen_string_literal: true

require_relative "../streams"
require_relative "../streams/handler"
require_relative "../streams/native_parts"

module Chaton
  class Service
    # The role streams in one process: the streams engine, and what runs its consumers.
    class StreamsSide
      # Time for consumers that were interrupted to end.
      SHUTDOWN_S = 1.0

      # @return [Native::Streams] once started
      attr_reader :engine

      # @param plan [Config::Plan]
      # @param place [Place]
      # @param log [Telemetry::Log]
      # @param index [Integer] number of the worker
      def initialize(plan, place:, log:, index: 0)
        @plan = plan
        @place = place
        @log = log
        @index = index
      end

      # @return [Streams::Handler] runs one batch
      def handler
        @handler ||= Streams::Handler.new(@plan.streams, log: @log, finder: Streams::Finder.new(root: @plan.root))
      end

      # Consumes from its return on.
      #
      # @param native_pool [Native::Pool]
      # @return [void]
      def start(native_pool)
        streams = @plan.streams
        settings = streams.engine_json(index: @index, eof: handler.of_eof)
        @engine = Native::Streams.start(native_pool, Streams.client.native, settings)
        @log.info("streams are consumed", broker: streams.broker, groups: streams.routes.map(&:group).uniq.join(","),
                                          topics: streams.routes.map(&:topic).uniq.join(","))
      end

      # Fetches no more; what runs is finished.
      #
      # @return [void]
      def quiet
        return if @quiet

        @quiet = true
        @engine.quiet
        @log.info("no more records are fetched")
      end

      # @param timeout_s [Float]
      # @return [Boolean] whether every batch has ended, and its end is committed
      def wait(timeout_s) = @engine.wait_idle(timeout_s)

      # What still runs is given to others; then it is interrupted.
      #
      # @return [void]
      def give_up
        _, ids = @engine.give_up
        handler.running.each { |thread| thread.raise(Streams::Shutdown) }
        done = @engine.wait_idle(SHUTDOWN_S)
        @log.warn("interrupted batches are read again, but for what was marked", count: ids.size, all_ended: done)
      end

      # @return [void]
      def stop = @engine.stop

      # @return [Hash]
      def status = { streams: @engine.stats }
    end
  end
end
