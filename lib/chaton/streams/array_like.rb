# frozen_string_literal: true

module Chaton
  module Streams
    # What a batch has in common with an Array, around what its class has: `size`, `[](place)`, `slice(start, length)`
    # and `each` with a block. Counting and slicing make no record.
    module ArrayLike
      # @param base [Class]
      # @private
      def self.prepended(base) = base.include(Enumerable)

      # @yieldparam record [Native::Record]
      # @return [self, Enumerator]
      def each
        block_given? ? super : to_enum(:each) { size }
      end

      # @return [Integer]
      def length = size

      # @return [Integer]
      def count(*wanted, &block) = wanted.empty? && !block_given? ? size : super

      # @return [Boolean]
      def empty? = size.zero?

      # @param place [Integer, Range] of a record, or a part; the former counted from the end when negative
      # @param length [Integer, nil]
      # @return [Native::Record, ArrayLike, nil] a part shares the batch's records; nil outside
      def [](place, length = nil)
        length.nil? && place.is_a?(Integer) ? super(place) : slice(place, length)
      end

      # @param (see #[])
      # @return (see #[])
      def slice(place, length = nil)
        return self[place] if length.nil? && place.is_a?(Integer)

        start, length = length ? [place, length] : bounds(place)
        start += size if start.negative?
        super(start, length) unless start.negative? || length.negative? || start > size
      end

      # @param count [Integer, nil]
      # @return [Native::Record, ArrayLike, nil] the first record, or a part with so many
      def first(count = nil) = count ? slice(0, counted(count)) : self[0]

      # @param count [Integer, nil]
      # @return [Native::Record, ArrayLike, nil] the last record, or a part with so many
      def last(count = nil)
        return self[-1] unless count

        count = [counted(count), size].min
        slice(size - count, count)
      end

      # @param length [Integer]
      # @yieldparam part [ArrayLike]
      # @return [self, Enumerator]
      def each_slice(length)
        raise ArgumentError, "a part has at least one record, not #{length}" unless length.positive?
        return to_enum(:each_slice, length) { (size + length - 1) / length } unless block_given?

        0.step(size - 1, length) { |start| yield slice(start, length) }
        self
      end

      # @return [Array<String, nil>] all values as they are, without records between
      def payloads = values

      # @return [String]
      def inspect
        from = size.zero? ? "" : " @#{first_offset}-#{last_offset}"
        "#<#{self.class.name} #{topic}/#{partition}#{from}, #{size} records>"
      end

      private

      # A part may end behind the last record.
      def bounds(range)
        start = range.begin || 0
        last = range.end || -1
        last += size if last.negative?
        last -= 1 if range.exclude_end? && range.end
        [start, [last - (start.negative? ? start + size : start) + 1, 0].max]
      end

      def counted(count)
        return count if count.is_a?(Integer) && !count.negative?

        raise ArgumentError, "#{count.inspect} is no number of records"
      end
    end
  end
end
