# frozen_string_literal: true

module Chaton
  class Supervisor
    # How long workers are not recycled because recycling did not help. Pure.
    #
    # - After a successor that did not come up, no worker is recycled for a pause that doubles each time.
    # - A worker that is above its soft ceiling as soon as it is ready must reach an age that doubles each time: its
    #   successor would be no smaller.
    class RecyclingBackoff
      # The first and the longest pause after a successor that failed.
      PAUSES_S = (5.0..300.0)
      # The first and the longest age of a worker that is too large from the start.
      AGES_S = (60.0..3600.0)

      # @param range [Range<Float>] the first and the longest time
      # @param times [Integer] failures so far
      # @return [Float] a time that doubles with each failure
      def self.doubled(range, times) = [range.begin * (2.0**[times, 30].min), range.end].min

      def initialize
        @failures = 0
        @not_before_s = 0.0
        @too_large = Hash.new(0)
      end

      # A successor did not come up.
      def failed(now_s)
        @not_before_s = now_s + RecyclingBackoff.doubled(PAUSES_S, @failures)
        @failures += 1
      end

      # A successor serves.
      def succeeded
        @failures = 0
        @not_before_s = 0.0
      end

      # @return [Float] seconds until a worker may be recycled again
      def left_s(now_s) = [@not_before_s - now_s, 0.0].max

      # A worker has become ready.
      #
      # @param fits [Boolean] whether it is below its soft ceiling
      def ready(index, fits:)
        fits ? @too_large.delete(index) : @too_large[index] += 1
      end

      # @return [Float] age in seconds before which the worker of this number is not recycled
      def age_s(index)
        times = @too_large.fetch(index, 0)
        times.zero? ? 0.0 : RecyclingBackoff.doubled(AGES_S, times - 1)
      end
    end
  end
end
