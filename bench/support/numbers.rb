# frozen_string_literal: true

# Benchmarks of Chaton beside its peers: one folder for each suite, bench/peers for the servers that are compared.
module Bench
  module_function

  # @param values [Array<Numeric>]
  # @return [Numeric] the middle one; the mean of the two in the middle when there is an even number of values
  def median(values)
    sorted = values.sort
    middle = sorted.size / 2
    sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0
  end

  # The percentile by nearest rank.
  #
  # @param sorted [Array<Numeric>]
  # @param share [Float] 0.99 for p99
  def percentile(sorted, share) = sorted[[(sorted.size * share).ceil - 1, 0].max].round(3)

  # @return [String] "72,068"
  def grouped(number) = number.round.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",")

  # @return [String] "7.81"; "72068", or "72,068" with thousands, from 100 on
  def short(value, thousands: false)
    return format("%.3g", value) if value < 100
    thousands ? grouped(value) : value.round.to_s
  end
end
