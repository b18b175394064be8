# frozen_string_literal: true

require "time"
require_relative "../../config/types"

module Chaton
  class CLI
    module Streams
      # Types of arguments.
      module Values
        # The position in a topic to begin at.
        class StartPosition < Config::Types::Base
          def initialize
            super("earliest, latest, an offset, -N for the N newest, or a time like 2026-01-31T12:00:00Z")
          end

          # @return [String, Integer, Array(String, Integer)] as a reader takes it; -N is unchanged
          def cast(value)
            return value if %w[earliest latest].include?(value)
            return Integer(value, 10) if value.match?(/\A-?\d+\z/)

            ["time", (Time.iso8601(value).to_r * 1000).to_i]
          rescue ArgumentError
            mismatch(value)
          end
        end

        # NAME=VALUE, several times.
        class Headers < Config::Types::Base
          # Headers of a record.
          LIMIT = 100

          def initialize = super("NAME=VALUE, at most #{LIMIT} times")

          def list? = true

          def arguments = 1..LIMIT

          # @return [Hash{String=>String, Array<String>}] as a record takes them
          def cast(*values)
            pairs = values.flatten.map do |text|
              name, value = text.split("=", 2)
              value && !name.empty? ? [name, value] : mismatch(text)
            end
            mismatch("#{pairs.size} of them") if pairs.size > LIMIT
            pairs.group_by(&:first).transform_values { |same| same.size == 1 ? same[0][1] : same.map(&:last) }
          end
        end
      end
    end
  end
end
