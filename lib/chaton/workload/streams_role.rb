# frozen_string_literal: true

require_relative "../streams"
require_relative "../streams/handler"
require_relative "../streams/native_methods"
require_relative "role"

module Chaton
  class Workload
    # The role streams in one process: the streams engine and the handler of its batches.
    class StreamsRole < Role
      # Time for consumers that were interrupted to end.
      SHUTDOWN_S = 1.0

      # @return [Streams::Handler] runs one batch
      def handler
        @handler ||= Streams::Handler.new(@plan.streams, log: @log, finder: Streams::Finder.new(root: @plan.root))
      end

      # Consumes from {#begin} on.
      def start(native_pool)
        streams = @plan.streams
        @engine = Native::Streams.start(native_pool, Streams.client.native, handler.of_eof, @context.batch_table,
                                        @context.death_table)
        @log.info("streams are consumed", broker: streams.broker, groups: streams.routes.map(&:group).uniq.join(","),
                                          topics: streams.routes.map(&:topic).uniq.join(","))
      end

      def begin
        @engine.resume unless @quiet
      end

      # Gives up the partitions of running batches, so that others consume them; then interrupts them.
      def give_up
        _, ids = @engine.give_up
        handler.interrupt
        done = @engine.wait_idle(SHUTDOWN_S)
        @log.warn("interrupted batches are read again, except for marked records", count: ids.size, all_ended: done)
      end

      private

      def quiet_engine
        @engine.quiet
        @log.info("no more records are fetched")
      end
    end
  end
end
