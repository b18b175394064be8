# frozen_string_literal: true

module Chaton
  module Telemetry
    # Tells now and then that long work goes on which cannot say how far it has come.
    class StillRunning
      # Between two lines.
      INTERVAL_S = 5.0

      # @param tell [#call] called on a thread of its own with the seconds so far
      def self.watch(tell, interval_s: INTERVAL_S)
        watch = new(tell, interval_s)
        yield
      ensure
        watch&.stop
      end

      def initialize(tell, interval_s)
        @tell = tell
        @interval_s = interval_s
        @begun_s = now_s
        @lock = Mutex.new
        @ended = ConditionVariable.new
        @thread = Thread.new { run }
        @thread.name = "chaton still running"
      end

      def stop
        @lock.synchronize do
          @over = true
          @ended.signal
        end
        @thread.join
      end

      private

      def run
        @tell.call((now_s - @begun_s).round(1)) until over?
      end

      def over?
        @lock.synchronize do
          @ended.wait(@lock, @interval_s) unless @over
          @over
        end
      end

      def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
