# frozen_string_literal: true

require "json"
require_relative "../streams"
require_relative "../streams/values"

module Chaton
  module Testing
    # A record that was produced in a test. Its value is the String that would be written, or nil.
    # rubocop:disable Lint/StructNewOverride -- a record has keys
    Produced = Struct.new(:topic, :value, :key, :headers, :partition, :timestamp_ms, :offset) do
      # rubocop:enable Lint/StructNewOverride
      # @return [Object] its value, read as JSON
      def json = value && JSON.parse(value)
    end

    # Takes the place of the client in tests, and keeps records in memory.
    class StreamsMemory
      include Streams::Values

      # The receipt of records that are kept.
      Written = Struct.new(:offset) do
        # @return [true]
        def wait(_timeout_s = nil) = true

        # @return [true]
        def done? = true

        # @return [Integer]
        def failed = 0
        alias_method :partition, :failed

        # @return [Array]
        def errors = []
      end

      # @return [Array<Produced>]
      attr_reader :records

      def initialize
        @records = []
        @lock = Mutex.new
      end

      # As {Streams::Client#produce}.
      #
      # @return [Written]
      def produce(topic, value, key, headers, partition, timestamp)
        keep([row(topic, value, key, headers, partition, timestamp)])
      end

      # As {Streams::Client#produce_many}.
      #
      # @return [Written]
      def produce_many(topic, values) = keep(values.map { |value| row_of(topic, value) })

      # As {Streams::Values#outbox}, but at once.
      #
      # @return [nil]
      def outbox(topic, values, _connection) = produce_many(topic, values) && nil

      # As {Streams::Client#wait}.
      #
      # @return [Written]
      def wait(receipt) = receipt

      # @param rows [Array<Array>] for the native client
      # @return [Written]
      def keep(rows)
        @lock.synchronize do
          rows.each { |row| @records << Produced.new(*row, *Array.new(6 - row.size), @records.size) }
          Written.new(@records.size - 1)
        end
      end

      def clear = @lock.synchronize { @records.clear }
    end
  end
end
