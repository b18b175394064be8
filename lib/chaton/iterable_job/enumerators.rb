# frozen_string_literal: true

module Chaton
  module IterableJob
    # Enumerators over common sources. Each begins with the item of the cursor.
    module Enumerators
      # Records loaded at once.
      BATCH_SIZE = 100

      # @return [Enumerator] of items
      def array_enumerator(array, cursor:)
        raise ArgumentError, "array_enumerator takes an Array, not #{array.class}" unless array.is_a?(Array)

        first = cursor || 0
        Enumerator.new(-> { [array.size - first, 0].max }) do |out|
          first.upto(array.size - 1) { |index| out.yield(array[index], index) }
        end
      end

      # @param cursor [Object, nil] a primary key
      # @param options [Hash] of `find_in_batches`, such as `batch_size:`
      # @return [Enumerator] of records, in the order of their primary keys
      def active_record_records_enumerator(relation, cursor:, **options)
        Enumerator.new(-> { relation.size }) do |out|
          relation.find_each(batch_size: BATCH_SIZE, **options, start: cursor) { |one| out.yield(one, one.id) }
        end
      end

      # As {#active_record_records_enumerator}.
      #
      # @return [Enumerator] of Arrays of records
      def active_record_batches_enumerator(relation, cursor:, **options)
        Enumerator.new do |out|
          relation.find_in_batches(batch_size: BATCH_SIZE, **options, start: cursor) do |records|
            out.yield(records, records.first.id)
          end
        end
      end

      # As {#active_record_records_enumerator}.
      #
      # @return [Enumerator] of relations
      def active_record_relations_enumerator(relation, cursor:, **options)
        Enumerator.new do |out|
          relation.in_batches(of: BATCH_SIZE, **options, start: cursor) do |part|
            first = part.minimum(relation.klass.primary_key)
            out.yield(part, first) unless first.nil?
          end
        end
      end

      # @param cursor [Integer, nil] a row's number
      # @return [Enumerator] of rows
      def csv_enumerator(csv, cursor:)
        first = cursor || 0
        Enumerator.new do |out|
          csv.each.with_index { |row, index| out.yield(row, index) if index >= first }
        end
      end

      # @param cursor [Integer, nil] a batch's number
      # @return [Enumerator] of Arrays of rows
      def csv_batches_enumerator(csv, cursor:, batch_size: BATCH_SIZE)
        first = cursor || 0
        Enumerator.new do |out|
          csv.each_slice(batch_size).with_index { |rows, index| out.yield(rows, index) if index >= first }
        end
      end
    end
  end
end
