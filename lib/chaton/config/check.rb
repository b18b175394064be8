# frozen_string_literal: true

require_relative "sources"
require_relative "streams_check"

module Chaton
  module Config
    # Checks the rules between options; each option alone was checked when it was set.
    class Check
      # Option, option that may not be smaller, reason.
      ORDERED = [
        [:uri_bytes_max, :header_bytes_max, "a URI that long could never arrive"]
      ].freeze

      # Ratio of the hard to the soft memory ceiling, as in Supervisor::MemoryLimits.
      HARD_RATIO_MIN = 1.1

      # @param sources [Sources] gets the problems
      def initialize(sources)
        @sources = sources
      end

      def run
        ORDERED.each { |lower, upper, why| compare(lower, upper, why) }
        check_crons
        check_limits
        check_proxies
        StreamsCheck.new(@sources).run
      end

      private

      # A tick of the clock is enqueued once per name.
      def check_crons
        twice = Array(@sources[:cron]).map(&:name).tally.find { |_, count| count > 1 }
        return unless twice

        @sources.problem(Origin.new("the configuration"),
                         "cron #{twice.first.inspect} is defined twice; give each its own name")
      end

      # A ceiling may also be a word such as :auto.
      def check_limits
        soft, hard, tree = %i[limit limit_hard limit_tree].map { |name|
          @sources[name] if @sources[name].is_a?(Integer)
        }
        compare(:limit, :limit_tree, "one worker could never be that large") if soft && tree
        return if soft.nil? || hard.nil? || hard >= (soft * HARD_RATIO_MIN).floor

        @sources.problem(Origin.new("the configuration"),
                         "limit_hard (#{shown(:limit_hard, hard)}) must be at least #{HARD_RATIO_MIN} times limit " \
                         "(#{shown(:limit, soft)}), or a worker would be stopped before it can be replaced")
      end

      def check_proxies
        given = Array(@sources[:trusted_proxies]).flatten
        word = given.uniq.size > 1 && (given & Types::TrustedProxies::WORDS).first
        return unless word

        @sources.problem(Origin.new("the configuration"),
                         "trusted_proxies #{word} is set beside #{(given - [word]).join(", ")}: it stands alone")
      end

      def compare(lower, upper, why)
        return unless @sources.set?(lower) || @sources.set?(upper)

        low, high = [lower, upper].map { |name| @sources[name] || Options[name].default }
        return if low <= high

        @sources.problem(Origin.new("the configuration"),
                         "#{lower} (#{shown(lower, low)}) is above #{upper} (#{shown(upper, high)}): #{why}")
      end

      def shown(name, value) = Options[name].type.show(value)
    end
  end
end
