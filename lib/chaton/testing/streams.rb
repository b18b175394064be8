# frozen_string_literal: true

require_relative "../streams"
require_relative "../consumer"

module Chaton
  # Jobs are in "chaton/testing".
  module Testing
    autoload :Consumption, "chaton/testing/consumption"
    autoload :StreamsMemory, "chaton/testing/streams_memory"

    # Streams in an application's tests: records are kept in memory instead of written, and consumers run without a
    # log.
    #
    # @example
    #   outcome = Chaton::Testing.consume(EventsConsumer, ['{"id":1}', { value: "x", key: "k" }], deserializer: :json)
    #   outcome.error            # => Chaton::DeserializationError
    #   outcome.marked           # => [0]
    #   Chaton::Testing.streams_fake! { SomeController.new.create }
    #   Chaton::Testing.produced("events").map(&:json)
    module StreamsHelpers
      # Runs a consumer with one batch of records. What it produces is kept in memory.
      #
      # @param consumer [Class, Consumer] an instance keeps its state
      # @param values [Array<String, Array, nil, Hash>] a Hash describes a record: value:, key:, headers:, timestamp:,
      #   offset:
      # @param topic [String]
      # @param partition [Integer]
      # @param deserializer [Symbol, #call, nil] as in the configuration
      # @return [Consumption] the result
      def consume(consumer, values, topic: "test", partition: 0, deserializer: nil)
        Consumption.new(consumer, values, topic: topic, partition: partition, deserializer: deserializer).run
      end

      # Keeps records in memory instead of writing them: from now on, or while the block runs.
      def streams_fake!(&block) = fake_streams(true, &block)

      # Writes records again: from now on, or while the block runs.
      def streams_disable!(&block) = fake_streams(false, &block)

      def streams_fake? = @streams_fake || false

      # @param topic [String, Symbol, nil] nil: any
      # @return [Array<Produced>] the records kept so far
      def produced(topic = nil)
        records = streams_memory.records.dup
        topic ? records.select { |record| record.topic == topic.to_s } : records
      end

      # Removes the records kept so far.
      def clear_produced = streams_memory.clear

      private

      def streams_memory = @streams_memory ||= StreamsMemory.new

      def fake_streams(on)
        before = streams_fake?
        former = Streams.swap_client(on ? streams_memory : nil)
        @streams_fake = on
        return unless block_given?

        begin
          yield
        ensure
          Streams.swap_client(former)
          @streams_fake = before
        end
      end
    end
  end
end
