# frozen_string_literal: true

module Chaton
  module Streams
    # The methods that a batch has in common with an Array. They build on `size`, `[](index)`, `slice(start, length)`
    # and `each` of the class. Counting and slicing make no record objects.
    module ArrayLike
      # @private
      def self.prepended(base) = base.include(Enumerable)

      def each
        block_given? ? super : to_enum(:each) { size }
      end

      def length = size

      def count(*wanted, &block) = wanted.empty? && !block_given? ? size : super

      def empty? = size.zero?

      # @param index [Integer, Range] the index of a record, counted from the end when negative, or a range
      # @return [Native::Record, ArrayLike, nil] a slice shares the batch's records; nil outside
      def [](index, length = nil)
        length.nil? && index.is_a?(Integer) ? super(index) : slice(index, length)
      end

      # @param (see #[])
      # @return (see #[])
      def slice(index, length = nil)
        return self[index] if length.nil? && index.is_a?(Integer)

        start, length = length ? [index, length] : bounds(index)
        start += size if start.negative?
        super(start, length) unless start.negative? || length.negative? || start > size
      end

      # @return [Native::Record, ArrayLike, nil] the first record, or the first `count`
      def first(count = nil) = count ? slice(0, counted(count)) : self[0]

      # @return [Native::Record, ArrayLike, nil] the last record, or the last `count`
      def last(count = nil)
        return self[-1] unless count

        count = [counted(count), size].min
        slice(size - count, count)
      end

      def each_slice(length)
        raise ArgumentError, "a slice has at least one record, not #{length}" unless length.positive?
        return to_enum(:each_slice, length) { (size + length - 1) / length } unless block_given?

        0.step(size - 1, length) { |start| yield slice(start, length) }
        self
      end

      # Karafka's names of all values, as the deserializer makes them, and of their bytes.
      def payloads = map(&:value)

      def raw_payloads = values

      def inspect
        from = size.zero? ? "" : " @#{first_offset}-#{last_offset}"
        "#<#{self.class.name} #{topic}/#{partition}#{from}, #{size} records>"
      end

      private

      # A slice may end after the last record.
      def bounds(range)
        start = range.begin || 0
        last = range.end || -1
        last += size if last.negative?
        last -= 1 if range.exclude_end? && range.end
        [start, [last - (start.negative? ? start + size : start) + 1, 0].max]
      end

      def counted(count)
        return count if count.is_a?(Integer) && !count.negative?

        raise ArgumentError, "#{count.inspect} is not a number of records"
      end
    end
  end
end
