# frozen_string_literal: true

module Chaton
  module Config
    # The types of option values. A type has
    #
    # - `cast(*values)`, which makes the value from what was written (in Ruby or, on the command line and in the
    #   environment, as a String), or raises {Mismatch};
    # - `rule`: the allowed values in words;
    # - `arguments`: how many values its line takes;
    # - `show(value)`: the value as the manual and the plan print it.
    module Types
      # A value breaks the rule of its option.
      class Mismatch < StandardError; end

      # The base of all types.
      class Base
        # @return [String] completes the sentence "NAME must be …"
        attr_reader :rule

        def initialize(rule)
          @rule = rule
        end

        # @return [Range] how many values a line takes
        def arguments = 1..1

        # @return [Boolean] whether several lines add up instead of overriding each other
        def list? = false

        # @param value [Object] as {#cast} returned it
        def show(value) = value.nil? ? "none" : value.to_s

        private

        def mismatch(value)
          raise Mismatch, "must be #{rule}, not #{value.inspect}"
        end
      end

      # A number within a range; whole or not.
      class Number < Base
        # @param unit [String, nil] "seconds", "milliseconds"
        # @param off [Boolean] whether 0 (or nil, false, "off") is allowed and means off
        def initialize(range, unit: nil, off: false)
          @range = range
          @off = off
          @whole = range.begin.is_a?(Integer)
          kind = unit || (@whole ? "a whole number" : "a number")
          low, high = [range.begin, range.end].map { |bound| Types.thousands(bound) }
          super("#{kind} from #{low} to #{high}#{", or 0 for off" if off}")
        end

        def cast(value)
          return @whole ? 0 : 0.0 if @off && [nil, false, 0, 0.0, "0", "off"].include?(value)

          number = @whole ? whole(value) : fraction(value)
          number && @range.cover?(number) ? number : mismatch(value)
        end

        def show(value)
          return super if value.nil?

          @off && value.zero? ? "off" : Types.thousands(value)
        end

        private

        def whole(value)
          return Integer(value, 10, exception: false) if value.is_a?(String)

          value if value.is_a?(Integer)
        end

        # NaN lies in no range; from Ruby 4.1 on, Range#cover? raises for it.
        def fraction(value)
          number = Float(value, exception: false) if value.is_a?(String) || value.is_a?(Numeric)
          number unless number&.nan?
        end
      end

      # A number of bytes, also written "64K", "64M" or "1G".
      class Bytes < Base
        # Suffix => bytes.
        UNITS = { "" => 1, "K" => 1 << 10, "M" => 1 << 20, "G" => 1 << 30 }.freeze

        def initialize(range)
          @range = range
          super("bytes from #{show(range.begin)} to #{show(range.end)}, such as 65536 or \"64K\"")
        end

        def cast(value)
          number, unit = value.to_s.match(/\A(\d+)\s?([KMG]?)(?:i?B)?\z/i)&.captures
          bytes = number && (number.to_i * UNITS.fetch(unit.upcase))
          bytes && @range.cover?(bytes) ? bytes : mismatch(value)
        end

        def show(value)
          unit, size = UNITS.to_a.reverse.find { |_, bytes| value.positive? && (value % bytes).zero? } || ["", 1]
          unit.empty? ? Types.thousands(value) : "#{Types.thousands(value / size)} #{unit}iB"
        end
      end

      # On or off.
      class Switch < Base
        # Words for on and off.
        WORDS = { "true" => true, "yes" => true, "on" => true, "1" => true,
                  "false" => false, "no" => false, "off" => false, "0" => false }.freeze

        def initialize = super("true or false")

        def arguments = 0..1

        def cast(value = true)
          WORDS.fetch(value.to_s.downcase) { mismatch(value) }
        end

        def show(value) = value ? "on" : "off"
      end

      # One of some names.
      class OneOf < Base
        # @param words [Hash{Object=>Symbol}] further values for them
        def initialize(*names, words: {})
          @names = names
          @words = words
          super([names[0..-2].join(", "), names.last].join(" or "))
        end

        def arguments = @words.key?(true) ? 0..1 : 1..1

        def cast(value = true)
          return @words[value] if @words.key?(value)

          @names.find { |name| name.to_s == value.to_s } || mismatch(value)
        end
      end

      # @return [String] 10000 → "10,000"
      def self.thousands(number)
        whole, fraction = number.to_s.split(".")
        fraction = nil if fraction == "0"
        [whole.gsub(/(?<=\d)(?=(\d{3})+\z)/, ","), fraction].compact.join(".")
      end
    end
  end
end
