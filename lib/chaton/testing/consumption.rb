# frozen_string_literal: true

require_relative "../streams"
require_relative "../streams/native_methods"
require_relative "../streams/values"
require_relative "streams_memory"

module Chaton
  module Testing
    # Runs a consumer with records in a test, and keeps the result.
    class Consumption
      include Streams::Values

      # Takes the place of a configured route.
      TestRoute = Struct.new(:topic, :consumer, :deserializer) do
        # @return [true]
        def transactional? = true

        # @return [false]
        def wait_for_deliveries? = false
      end

      # @return [Consumer] the instance
      attr_reader :consumer
      # @return [Exception, nil] what it raised
      attr_reader :error
      # @return [Array<Produced>] what it produced, including in transactions
      attr_reader :produced

      # @param consumer [Class, Consumer]
      # @param values [Array]
      # @param topic [String]
      # @param partition [Integer]
      # @param deserializer [Symbol, #call, nil]
      def initialize(consumer, values, topic:, partition:, deserializer:)
        klass = consumer.is_a?(Class) ? consumer : consumer.class
        route = TestRoute.new(topic, klass, deserializer)
        @factory = Streams::ConsumerFactory.new(route)
        @consumer = consumer.is_a?(Class) ? @factory.instance : consumer.tap { |one| one.factory = @factory }
        @batch = Streams::Batch.build(topic, partition, values.map { |value| given(value) })
      end

      # @return [self]
      # @private
      def run
        memory = StreamsMemory.new
        former = Streams.swap_client(memory)
        consume
        memory.keep(calls.fetch(:written))
        @produced = memory.records
        self
      ensure
        Streams.swap_client(former)
        former.keep(memory.records.map { |record| record.to_a.first(6) }) if former.is_a?(StreamsMemory)
      end

      # @return [Boolean] whether the batch is done
      def done? = calls[:outcome] == :done

      # @return [Boolean] whether it would be retried
      def failed? = !done?

      # @return [Array<Integer>] offsets that were marked
      def marked = calls[:marked].uniq.sort

      # @return [Float, nil] the pause that it asked for
      def paused_s = calls[:paused_s]

      # @return [Integer, String, Array, nil] the position that it asked for
      def seek = calls[:seek]

      private

      def calls = @batch.calls

      def consume
        given = @factory.prepare(@batch, @consumer)
        @factory.consume(@consumer, given) unless given.empty?
        @batch.done
      rescue Exception => e # rubocop:disable Lint/RescueException -- `exit` in a consumer must not end the tests
        raise if e.is_a?(SignalException)

        @error = e
        @batch.failed(e.class.name || "an error without a name", Jobs::ErrorReport.message(e))
      end

      # As {Streams::Values#row_of}, and an offset.
      def given(value)
        offset = value[:offset] if value.is_a?(Hash)
        _, bytes, key, headers, _, timestamp_ms = row_of(nil, value.is_a?(Hash) ? value.except(:offset) : value)
        [bytes, key, headers, timestamp_ms, offset]
      end
    end
  end
end
