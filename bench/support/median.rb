# frozen_string_literal: true

# Measuring Chaton beside others: bench/web for the web engine, bench/peers for who is measured.
module Bench
  # @param values [Array<Numeric>]
  # @return [Numeric] the middle one; of an even number, the mean of the two in the middle
  def self.median(values)
    sorted = values.sort
    middle = sorted.size / 2
    sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
  end
end
