# frozen_string_literal: true

require_relative "../types"

module Chaton
  module Config
    module Types
      # A number of bytes, or one of some words.
      class BytesOr < Base
        # @param range [Range] of bytes
        # @param none [Boolean] whether there may be none
        def initialize(range, *words, none: false)
          @bytes = Bytes.new(range)
          @words = words
          @none = none
          super([*words, *("none" if none), @bytes.rule].join(", or ").sub(", or ", words.size > 1 ? ", " : ", or "))
        end

        def cast(value)
          return if @none && [nil, false, "none"].include?(value)
          return :off if @words.include?(:off) && [nil, false].include?(value)

          @words.find { |word| word.to_s == value.to_s } || @bytes.cast(value)
        rescue Mismatch
          mismatch(value)
        end

        def show(value) = value.is_a?(Integer) ? @bytes.show(value) : super
      end

      # How much may be allocated between two collections: bytes, or a multiple of the live bytes.
      class EdenSize < Base
        # Allowed multiples.
        MULTIPLES = (0.1..64.0)

        def initialize
          @bytes = Bytes.new((1 << 20)..(1 << 40))
          super("auto, #{@bytes.rule}, or a multiple of the live bytes from #{MULTIPLES.begin} to " \
                "#{MULTIPLES.end.to_i} (2.5 or \"2.5x\")")
        end

        # @return [Symbol, Integer, Float] :auto, bytes or a multiple
        def cast(value)
          return :auto if value.to_s == "auto"

          multiple = multiple_of(value)
          return @bytes.cast(value) unless multiple

          MULTIPLES.cover?(multiple) ? multiple : mismatch(value)
        rescue Mismatch
          mismatch(value)
        end

        def show(value)
          case value
          when Float then "#{Types.thousands(value)}x"
          when Integer then @bytes.show(value)
          else super
          end
        end

        private

        def multiple_of(value)
          return value if value.is_a?(Float)

          value.to_s[/\A(\d+(?:\.\d+)?)x\z/i, 1]&.to_f || (value.to_s[/\A\d+\.\d+\z/]&.to_f if value.is_a?(String))
        end
      end

      # The growth of the number of old objects that starts a full collection.
      class LonglifeGrowth < Base
        # Allowed shares.
        GROWTH = (0.05..20.0)

        def initialize
          super("settle, off or a number from #{GROWTH.begin} to #{GROWTH.end.to_i}")
        end

        def cast(value)
          return :off if [nil, false].include?(value)

          word = %i[settle off].find { |name| name.to_s == value.to_s }
          return word if word

          growth = Float(value, exception: false) if value.is_a?(String) || value.is_a?(Numeric)
          growth && GROWTH.cover?(growth) ? growth : mismatch(value)
        end
      end
    end
  end
end
