# frozen_string_literal: true

module Chaton
  module Streams
    # Tells of records that were not written and whose receipt nobody has read: once a second by topic and cause, in the
    # log, to the handlers and to the metrics. It has a thread, which waits for the producer.
    class LossReporter
      # One wait of the thread.
      WAIT_S = 3600.0

      # @param native [Native::StreamsClient]
      def initialize(native)
        @native = native
      end

      # Starts the thread; in a forked child another one.
      #
      # @return [self]
      def start
        @thread = Thread.new { loop { tell(@native.delivery_errors(WAIT_S)) } }
        @thread.name = "chaton delivery errors"
        @thread.report_on_exception = false
        self
      end

      # Tells at once, because the process ends.
      def finish
        tell(@native.delivery_errors(nil))
      rescue StreamError
        # A log that cannot be opened has no records of this process.
      end

      private

      def tell(list)
        list.each do |topic, name, message, records|
          next warn("streams: the producer: #{message}; trying again") if records.zero?

          warn("#{records} records for topic #{topic.inspect} are lost, and nobody has read their receipts: #{message}")
          @native.count_delivery_errors(Streams.pool, topic, records) if Streams.pool
          call(Chaton.const_get(name).new(message), { topic: topic, records: records })
        end
      end

      def call(error, facts)
        Streams.delivery_error_handlers.each do |handler|
          handler.call(error, facts)
        rescue Exception => e # rubocop:disable Lint/RescueException -- one broken handler is not the process
          warn("a handler of on_delivery_error failed: #{e.class}: #{e.message}")
        end
      end

      def warn(line)
        Streams.server_logger.warn(line)
      rescue StandardError
        # The application's logger is no reason to end the thread.
      end
    end
  end
end
