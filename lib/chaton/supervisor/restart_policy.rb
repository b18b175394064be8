# frozen_string_literal: true

module Chaton
  class Supervisor
    # Decides when a worker that died is started again. Pure: a table of deaths
    # in, a delay or a stop out.
    #
    # - A worker that had served and dies is replaced at once; when it happens
    #   again within the window, after a delay that doubles each time. It is
    #   never given up: some service is better than none.
    # - A worker that does not even become ready is tried again after a delay
    #   that doubles, and after `crash_loop_count` tries in a row no more: the
    #   code or its surroundings are broken, and a person has to look.
    class RestartPolicy
      # Wait this long, then start it.
      Again = Struct.new(:delay_s)
      # Do not start it again.
      Stop = Struct.new(:failures)

      # @param delay_s [Numeric] the first delay
      # @param delay_max_s [Numeric] the longest delay
      # @param count [Integer] failed boots in a row that end it
      # @param window_s [Numeric] how long a death is remembered
      def initialize(delay_s:, delay_max_s:, count:, window_s:)
        @delay_s = delay_s
        @delay_max_s = delay_max_s
        @count = count
        @window_s = window_s
        @failed_boots = 0
        @deaths = []
      end

      # The worker died before it was ready.
      #
      # @return [Again, Stop]
      def boot_failed
        @failed_boots += 1
        return Stop.new(@failed_boots) if @failed_boots >= @count

        Again.new(delay(@failed_boots))
      end

      # The worker became ready.
      #
      # @return [void]
      def ready
        @failed_boots = 0
      end

      # The worker died after it had been ready.
      #
      # @param now_s [Float]
      # @return [Again]
      def died(now_s)
        @deaths.reject! { |at| now_s - at > @window_s }
        # Only as many as can still change the delay.
        @deaths.shift if @deaths.size >= 64
        @deaths << now_s
        Again.new(delay(@deaths.size - 1))
      end

      private

      def delay(times)
        return 0.0 if times.zero?

        # Capped before the power is taken, so that the number stays small.
        [@delay_s * (2.0**[times - 1, 30].min), @delay_max_s].min.to_f
      end
    end
  end
end
