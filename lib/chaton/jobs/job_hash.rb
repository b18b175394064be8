# frozen_string_literal: true

module Chaton
  module Jobs
    # Checks, by Sidekiq's rules, a job that is pushed as a Hash: one that could never run raises ArgumentError.
    module JobHash
      # A greater `retry_for` is a point in time, not a duration.
      RETRY_FOR_MAX_S = 1_000_000_000
      # Least seconds over which `spread_interval` distributes jobs.
      SPREAD_MIN_S = 5

      class << self
        # @return [Hash{String=>Object}] the item
        def check(item)
          unless item.is_a?(Hash) && item.key?("class") && item.key?("args")
            refuse("a job must be a Hash with class and args, under Strings", item)
          end
          refuse("args must be an Array", item) unless list?(item["args"])
          refuse("class must be a job class or its name", item) unless job_class?(item["class"])
          refuse("tags must be an Array", item) unless item["tags"].nil? || item["tags"].is_a?(Array)
          refuse("retry_for must be a number of seconds", item) unless duration?(item["retry_for"])
          item
        end

        # @return [Float]
        def time(value)
          return value.to_f if value.is_a?(Numeric) && value.to_f.finite?

          raise ArgumentError, "at must be a Numeric or an Array of Numeric timestamps; it is #{value.inspect}"
        end

        # Times for many jobs.
        #
        # @param at [Numeric, Array<Numeric>, nil] one for all, or one for each
        # @param spread [Numeric, nil] seconds over which they are distributed at random instead
        # @return [Array<Float>, Float, nil]
        def times(at, spread, lists)
          raise ArgumentError, "Only one of 'at' or 'spread_interval' can be given, not both" if at && spread
          return spread_over(spread, lists) if spread
          return at && time(at) unless at.is_a?(Array)
          return at.map { |value| time(value) } if at.size == lists.size

          raise ArgumentError, "at must be a Numeric or an Array of Numeric timestamps, one for each job; it has " \
                               "#{at.size} for #{lists.size} jobs"
        end

        private

        def spread_over(seconds, lists)
          unless seconds.is_a?(Numeric) && seconds.positive?
            raise ArgumentError, "spread_interval must be a Numeric above 0; it is #{seconds.inspect}"
          end

          now = Clock.now_s
          lists.map { now + (rand * [seconds, SPREAD_MIN_S].max) }.to_a
        end

        def list?(args) = args.is_a?(Array) || args.is_a?(Enumerator::Lazy)

        def job_class?(value)
          return !value.empty? if value.is_a?(String)

          value.is_a?(Class) && (value.respond_to?(:declared) || value.respond_to?(:get_sidekiq_options))
        end

        def duration?(value) = value.nil? || (value.is_a?(Numeric) && value <= RETRY_FOR_MAX_S)

        def refuse(why, item) = raise(ArgumentError, "#{why}: #{item.inspect}")
      end
    end
  end
end
