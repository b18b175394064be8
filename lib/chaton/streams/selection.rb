# frozen_string_literal: true

require_relative "array_like"

module Chaton
  module Streams
    # The records of a batch that pass a consumer's filters. It has the methods of a batch.
    class Selection
      prepend ArrayLike

      # Selects records with a block. The others are marked as done.
      #
      # @param batch [Native::Batch]
      # @yieldparam record [Native::Record]
      # @yieldreturn [Boolean]
      # @return [Selection]
      def self.of(batch)
        selection = new(batch, [])
        batch.each { |record| yield(record) ? selection.records << record : batch.mark_one(record.offset) }
        selection
      end

      # @return [Array<Native::Record>]
      attr_reader :records

      # @param batch [Native::Batch]
      # @param records [Array<Native::Record>]
      def initialize(batch, records)
        @batch = batch
        @records = records
      end

      def size = @records.size

      # @return [Native::Record, nil]
      def [](index) = @records[index]

      # @return [Selection, nil]
      def slice(start, length) = @records[start, length]&.then { |records| Selection.new(@batch, records) }

      # @yieldparam record [Native::Record]
      # @return [self]
      def each
        @records.each do |record|
          @current = record.offset
          yield record
        end
        @current = nil
        self
      end

      # @return [Integer, nil] the offset of the record that `each` yields
      def current_offset = @current || @batch.current_offset

      # @return [Array<String, nil>]
      def values = @records.map(&:raw)

      # @return [Integer, nil]
      def first_offset = @records.first&.offset

      # @return [Integer, nil]
      def last_offset = @records.last&.offset

      def bytes = @records.sum { |record| record.raw.to_s.bytesize + record.key.to_s.bytesize }

      %i[topic partition generation lane strand attempt isolated? end_offset revoked? open? describe].each do |name|
        define_method(name) { @batch.public_send(name) }
      end

      %i[mark mark_one pause seek].each do |name|
        define_method(name) { |value| @batch.public_send(name, value) }
      end
    end
  end
end
