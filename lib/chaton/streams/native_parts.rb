# frozen_string_literal: true

require_relative "../native"
require_relative "array_like"

module Chaton
  # The native classes, and what of them is written in Ruby: whatever is not in the path of every record.
  module Streams
    # What is written in Ruby of the native record: what is not asked of every one.
    module RecordParts
      # @return [Time, nil] when it was written, as its writer said; nil where the log has no time
      def timestamp
        ms = timestamp_ms
        Time.at(0, ms, :millisecond) unless ms.negative?
      end

      # @return [String]
      def inspect = "#<#{self.class.name} #{topic}/#{partition} @#{offset}>"
    end

    # What is written in Ruby of the native receipt.
    module ReceiptParts
      # Longer than any record may take to become durable, or to fail.
      FOREVER_S = 100_000.0

      # Waits until every record is durable.
      #
      # @param timeout_s [Numeric] by itself as long as `delivery_timeout_s` lets them
      # @return [Boolean] false when time was up
      # @raise [LogError] the first failure
      def wait(timeout_s = FOREVER_S) = super(timeout_s.to_f)
    end

    # Records of one partition, given to a consumer together.
    Batch = Native::Batch
    # One record of a batch.
    Record = Native::Record
    # What became of records that were produced.
    Receipt = Native::Receipt

    [[Batch, ArrayLike], [Record, RecordParts], [Receipt, ReceiptParts]].each { |klass, parts| klass.prepend(parts) }
  end
end
