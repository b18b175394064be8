# frozen_string_literal: true

require_relative "../native_library"
# Elsewhere no log is read, but consumers are tested.
Chaton::NativeLibrary.new.system? ? require_relative("../native") : require_relative("../testing/records")
require_relative "array_like"

module Chaton
  # The native classes get the methods that need not be fast from here.
  module Streams
    # Methods of a record.
    module RecordMethods
      # @return [Time, nil] its timestamp; nil where the log has none
      def timestamp
        ms = timestamp_ms
        Time.at(0, ms, :millisecond) unless ms.negative?
      end

      # Karafka's name of `value`.
      def payload = value

      # Karafka's name of `raw`.
      def raw_payload = raw

      def inspect = "#<#{self.class.name} #{topic}/#{partition} @#{offset}>"
    end

    # Methods of a receipt.
    module ReceiptMethods
      # Longer than any record takes to become durable or to fail.
      FOREVER_S = 100_000.0

      # Waits until every record is durable.
      #
      # @param timeout_s [Numeric] without it, until every record is durable or has failed
      # @return [Boolean] false when time was up
      # @raise [StreamError] the first failure
      def wait(timeout_s = FOREVER_S) = super(timeout_s.to_f)
    end

    # Records of one partition, given to a consumer together.
    Batch = Native::Batch
    # One record of a batch.
    Record = Native::Record
    # Whether produced records are durable.
    Receipt = Native::Receipt

    [[Batch, ArrayLike], [Record, RecordMethods], [Receipt, ReceiptMethods]].each { |klass, methods|
      klass.prepend(methods)
    }
  end
end
