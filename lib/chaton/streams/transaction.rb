# frozen_string_literal: true

require_relative "values"

module Chaton
  module Streams
    # Collects the records and marks of a consumer, and writes them in one transaction.
    class Transaction
      include Values

      # How much a transaction may hold in memory: as much as the producer's buffer.
      Limits = Struct.new(:records_max, :bytes_max) do
        # @param settings [Config::StreamsSettings]
        # @return [Limits]
        def self.of(settings) = new(*settings.log.values_at(:produce_buffer_records, :produce_buffer_bytes)).freeze
      end
      # Limits without a configuration.
      LIMITS = Limits.new(100_000, 64 << 20).freeze

      # @param batch [Native::Batch]
      # @param limits [Limits, nil]
      def initialize(batch, limits = nil)
        @batch = batch
        @limits = limits || LIMITS
        @rows = []
        @bytes = 0
        @through = nil
      end

      # @param (see Producing#produce)
      # @raise [BufferFull] when the transaction is too large
      def produce(topic, value, key: nil, headers: nil, partition: nil, timestamp: nil)
        keep(row(topic.to_s, value, key, headers, partition, timestamp))
      end

      # @param (see Producing#produce_many)
      # @raise [BufferFull]
      def produce_many(topic, values)
        values.each { |value| keep(row_of(topic.to_s, value)) }
        nil
      end

      # Marks the record and all before it in this batch as done with the transaction.
      #
      # @param record [Native::Record, Integer, #last_offset]
      def mark(record)
        offset = record if record.is_a?(Integer)
        offset ||= record.respond_to?(:offset) ? record.offset : record.last_offset
        @through = [@through, offset].compact.max
        nil
      end

      # @raise [StreamError]
      # @private
      def commit = @batch.transact(@rows, @through)

      private

      def keep(row)
        @bytes += row[1].to_s.bytesize + row[2].to_s.bytesize
        if @rows.size >= @limits.records_max || @bytes > @limits.bytes_max
          raise BufferFull, "a transaction holds at most #{@limits.records_max} records and #{@limits.bytes_max} " \
                            "bytes (see produce_buffer_bytes); use one for each slice: " \
                            "batch.each_slice(100) { |part| transaction { … } }"
        end
        @rows << row
        nil
      end
    end
  end
end
