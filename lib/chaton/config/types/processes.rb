# frozen_string_literal: true

require "etc"
require_relative "../types"

module Chaton
  module Config
    # How many threads a pool may have. The last field tells whether the maximum was set.
    Threads = Struct.new(:threads_min, :threads_max, :threads_max_given) do
      # @return [String] "1:32"
      def to_s = "#{threads_min}:#{threads_max}"
    end

    module Types
      # `threads 1..32`, `threads 5, 5`, `threads 5`, "1:32", "1..32".
      class ThreadRange < Base
        # Threads of one pool.
        LIMIT = 10_000
        # The maximum of a range without one.
        OPEN_END = 32

        def initialize = super("a range such as 1..32 (-t 1:32), the maximum from 1 to #{Types.thousands(LIMIT)}")

        def arguments = 1..2

        def cast(first, *last)
          written = [first, *last]
          low, high = last.empty? ? ends(first) : written
          min = whole(low)
          max = high.to_s.empty? ? [OPEN_END, min.to_i].max : whole(high)
          mismatch(last.empty? ? first : written) unless min && min >= 0 && max&.between?(1, LIMIT)
          raise Mismatch, "has a minimum of #{min} above the maximum of #{max}; write the smaller first" if min > max

          # A pool needs a thread to take work, so Puma's 0 means 1 here.
          Threads.new([min, 1].max, max, !high.to_s.empty?).freeze
        end

        private

        def whole(value) = Integer(value.to_s, 10, exception: false)

        def ends(value)
          return [value.begin, value.exclude_end? ? value.end&.pred : value.end] if value.is_a?(Range)

          low, high = value.to_s.split(/:|\.\./, 2)
          [low, high || low]
        end
      end

      # `workers 2` (each has all roles that are on), `workers web: 2, jobs: 1, streams: 1`, `workers :auto`.
      class Workers < Base
        # Worker processes.
        LIMIT = 512
        # Roles of a worker.
        ROLES = %i[web jobs streams].freeze

        def initialize
          super("a whole number from 0 to #{LIMIT}, \"auto\" for one a processor, or web: N, jobs: N, " \
                "streams: N")
        end

        # @return [Hash{Symbol=>Integer}] workers by role, in the order in which they were written; `every` for workers
        #   with all roles
        def cast(value)
          return roles(value) if value.is_a?(Hash)

          count = value.to_s == "auto" ? Etc.nprocessors : Integer(value.to_s, 10, exception: false)
          { every: count&.between?(0, LIMIT) ? count : mismatch(value) }.freeze
        end

        def show(value)
          value.key?(:every) ? value.fetch(:every).to_s : value.map { |role, count| "#{role}: #{count}" }.join(", ")
        end

        private

        def roles(value)
          value.each do |role, count|
            known = ROLES.include?(role)
            raise Mismatch, "know no role #{role.inspect}; there are web, jobs and streams" unless known

            mismatch(value) unless count.is_a?(Integer) && count.between?(0, LIMIT)
          end
          mismatch(value) if value.empty? || value.values.sum > LIMIT
          value.dup.freeze
        end
      end
    end
  end
end
