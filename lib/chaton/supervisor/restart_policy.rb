# frozen_string_literal: true

module Chaton
  class Supervisor
    # Decides when a worker that died is started again. Pure: it gets deaths and returns a delay or the decision to give
    # up.
    #
    # - A worker that had been ready and dies is replaced at once; if it happens again within the window, after a delay
    #   that doubles each time. It is never given up: some service is better than none. A worker that ended with status
    #   0 was asked to by somebody else (a watcher of memory): the first delay is the longest then.
    # - A worker that does not become ready is tried again after a delay that doubles. After `count` tries in
    #   a row it is given up: the code or its environment is broken, and a person has to look.
    # - A process that the system refuses (no pid, memory or descriptor is free) is tried again after a delay that
    #   doubles, and never given up: nothing says that the code is broken.
    class RestartPolicy
      # Start it after this delay.
      RestartAfter = Struct.new(:delay_s)
      # Do not start it again.
      GiveUp = Struct.new(:failures)
      # The shortest delay after a refusal, so that a configuration without a delay does not spin.
      REFUSED_DELAY_MIN_S = 0.1

      # @param delay_s [Numeric] the first delay
      # @param delay_max_s [Numeric] the longest delay
      # @param count [Integer] failed boots in a row that end it
      # @param window_s [Numeric] how long a death counts
      def initialize(delay_s:, delay_max_s:, count:, window_s:)
        @delay_s = delay_s
        @delay_max_s = delay_max_s
        @count = count
        @window_s = window_s
        @failed_boots = 0
        @refusals = 0
        @deaths = []
        @clean_at_s = nil
      end

      # The worker died before it was ready.
      def boot_failed
        @failed_boots += 1
        return GiveUp.new(@failed_boots) if @failed_boots >= @count

        RestartAfter.new(delay(@failed_boots))
      end

      # The system refused the process.
      def refused
        @refusals += 1
        RestartAfter.new([delay(@refusals), REFUSED_DELAY_MIN_S].max)
      end

      # The worker became ready.
      def ready
        @failed_boots = @refusals = 0
      end

      # The worker died after it had been ready.
      #
      # @param clean [Boolean] whether it ended with status 0
      def died(now_s, clean: false)
        return RestartAfter.new(clean_delay_s(now_s)) if clean

        @deaths.reject! { |at| now_s - at > @window_s }
        # More of them no longer change the delay.
        @deaths.shift if @deaths.size >= 64
        @deaths << now_s
        RestartAfter.new(delay(@deaths.size - 1))
      end

      private

      # Bounds the forks of workers that end as soon as they are ready.
      def clean_delay_s(now_s)
        again = @clean_at_s && now_s - @clean_at_s <= @window_s
        @clean_at_s = now_s
        delay(again ? 1 : 0)
      end

      def delay(times)
        return 0.0 if times.zero?

        # The exponent is limited, so that the number stays small.
        [@delay_s * (2.0**[times - 1, 30].min), @delay_max_s].min.to_f
      end
    end
  end
end
