# frozen_string_literal: true

module Chaton
  module Telemetry
    # Formats a number of bytes for people.
    module Size
      UNITS = %w[B KiB MiB GiB TiB].freeze
      # Smaller amounts get a decimal.
      DECIMAL_BELOW = 10

      # @return [String] 87_031_808 → "83 MiB"; "-" for nil
      def self.of(bytes)
        return "-" if bytes.nil?

        amount = bytes.to_f
        unit = UNITS.each_with_index.find { |_, index| amount < 1024**(index + 1) } || [UNITS.last, UNITS.size - 1]
        amount /= 1024**unit.last
        "#{amount < DECIMAL_BELOW && unit.last.positive? ? amount.round(1) : amount.round} #{unit.first}"
      end
    end
  end
end
