# frozen_string_literal: true

require "json"
require_relative "../transaction"
require_relative "values"

module Chaton
  module Streams
    # Writes records through the native client, and converts their values. A record takes one native call.
    class Client
      include Values

      # @param settings [Config::StreamsSettings]
      # @return [Client]
      def self.for(settings)
        require_relative "../native"
        require_relative "native_methods"
        client = new(Native::StreamsClient.new(settings.log_document), settings)
        client.delivery_errors.start
        # Does nothing in a forked child that has written nothing.
        at_exit { client.flush_at_exit }
        client
      end

      # @return [Native::StreamsClient]
      attr_reader :native
      # @return [LossReporter]
      attr_reader :delivery_errors

      # @param native [Native::StreamsClient]
      # @param settings [Config::StreamsSettings]
      def initialize(native, settings)
        @native = native
        @delivery_errors = LossReporter.new(native)
        @produce_timeout_s = settings.produce_timeout_s
        @delivery_timeout_s = settings.delivery_timeout_s
        @flush_timeout_s = settings.flush_timeout_s
        @finished = false
        # Without such a topic, producing pays nothing for them.
        @followed = settings.routes.any?(&:wait_for_deliveries?)
      end

      # @param topic [String]
      # @param value [String, Hash, Array, nil]
      # @param key [String, nil]
      # @param headers [Hash, nil]
      # @param partition [Integer, nil]
      # @param timestamp [Time, Integer, nil]
      # @return [Native::Receipt, nil] nil inside {Chaton.transaction}
      def produce(topic, value, key, headers, partition, timestamp)
        if (transaction = Chaton::Transaction.current)
          return transaction.produce(row(topic, value, key, headers, partition, timestamp))
        end

        receipt = @native.produce(
          topic, value.is_a?(String) ? value : bytes_of(value), key.nil? ? nil : key_of(key),
          headers && headers_of(headers), partition, timestamp && ms_of(timestamp), @produce_timeout_s
        )
        @followed ? Deliveries.add(receipt) : receipt
      end

      # @param topic [String]
      # @param values [Array] values; a Hash describes a record
      # @return [Native::Receipt] of all
      def produce_many(topic, values)
        if (transaction = Chaton::Transaction.current)
          return values.each { |value| transaction.produce(row_of(topic, value)) } && nil
        end

        receipt = if values.all?(String)
                    @native.produce_values(topic, values, @produce_timeout_s)
                  else
                    @native.produce_many(values.map { |value| row_of(topic, value) }, @produce_timeout_s)
                  end
        @followed ? Deliveries.add(receipt) : receipt
      end

      # @param rows [Array<Array>] topic, value, key, headers, partition, timestamp in ms
      # @return [Native::Receipt]
      def produce_rows(rows) = @native.produce_many(rows, @produce_timeout_s)

      # Waits until the records of a receipt are durable.
      #
      # @param receipt [Native::Receipt]
      # @return [Native::Receipt]
      # @raise [StreamError]
      def wait(receipt)
        unless receipt
          raise StreamRefused,
                "a record of Chaton.transaction or of the outbox is not written before its end: use produce"
        end

        return receipt if receipt.wait(@delivery_timeout_s)

        raise StreamUnavailable,
              "records are not durable after #{@delivery_timeout_s} s (delivery_timeout_s), but may " \
              "become so later; is #{@native.address} up?"
      end

      # Waits until all records are written, for at most `flush_timeout_s`.
      #
      # @return [Integer] records that are left
      def flush
        @native.flush(@flush_timeout_s)
      rescue StreamError
        # A log that cannot be opened has no records of this process.
        0
      end

      # The same for a worker that stops; its `at_exit` does not wait again.
      #
      # @return [Integer] records that are left
      def finish
        @finished = true
        flush
      end

      # Waits at the end of the process as long as records go on becoming durable, and reports those that do not.
      #
      # @param err [IO]
      def flush_at_exit(err: $stderr)
        return if @finished

        until_s = monotonic_s + @delivery_timeout_s
        before = Float::INFINITY
        while (left = flush).positive? && left < before && monotonic_s < until_s
          before = left
        end
        @delivery_errors.finish
        return unless left.positive?

        err.puts "chaton: #{left} records were not written before the process ended, and are lost: " \
                 "#{@native.address} accepts none. Chaton.produce! returns when a record is written"
      end

      private

      def monotonic_s = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end
  end
end
