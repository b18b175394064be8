# frozen_string_literal: true

module Chaton
  class Supervisor
    # How long workers are left alone because replacing them did not help. Pure.
    #
    # - After a successor that did not come up nobody is replaced for a while that doubles each time.
    # - A worker that is above its soft ceiling as soon as it is ready must have reached an age that doubles each time:
    #   the next one would be no smaller.
    class Rest
      # The first pause after a successor that failed, and the longest.
      PAUSES_S = (5.0..300.0)
      # The first age that one too large from the start must reach, and the longest.
      AGES_S = (60.0..3600.0)

      # @param range [Range<Float>] the first, and the longest
      # @param times [Integer] how often it was in vain
      # @return [Float] a time that doubles each time
      def self.doubled(range, times) = [range.begin * (2.0**[times, 30].min), range.end].min

      def initialize
        @failures = 0
        @not_before_s = 0.0
        @too_large = Hash.new(0)
      end

      # A successor did not come up.
      #
      # @param now_s [Float]
      # @return [void]
      def failed(now_s)
        @not_before_s = now_s + Rest.doubled(PAUSES_S, @failures)
        @failures += 1
      end

      # A successor serves.
      #
      # @return [void]
      def worked
        @failures = 0
        @not_before_s = 0.0
      end

      # @param now_s [Float]
      # @return [Float] seconds until somebody may be replaced again
      def left_s(now_s) = [@not_before_s - now_s, 0.0].max

      # A worker has become ready.
      #
      # @param index [Integer]
      # @param fits [Boolean] whether it is below its soft ceiling
      # @return [void]
      def ready(index, fits:)
        fits ? @too_large.delete(index) : @too_large[index] += 1
      end

      # @param index [Integer]
      # @return [Float] seconds that a worker of this number must have lived before it is replaced
      def age_s(index)
        times = @too_large.fetch(index, 0)
        times.zero? ? 0.0 : Rest.doubled(AGES_S, times - 1)
      end
    end
  end
end
