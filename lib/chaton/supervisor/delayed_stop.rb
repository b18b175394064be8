# frozen_string_literal: true

require_relative "event_loop"

module Chaton
  class Supervisor
    # The time between the request to stop and the stop itself, in which the server goes on serving: `stop_delay_s`, and
    # after it as long as the kernel holds connections that a process is about to accept. Without sockets there is no
    # such time. A source of the event loop.
    class DelayedStop
      # Longest wait for connections to be accepted.
      ACCEPT_S = 5.0
      # Pause between two looks at the sockets, which are empty within a millisecond as a rule.
      CHECK_EVERY_S = 0.005

      attr_reader :due_at

      def initialize(listeners, delay_s, log:)
        @listeners = listeners
        @delay_s = delay_s
        @log = log
      end

      # Begins the stop when it is time to; a second request changes nothing.
      #
      # @param accepting [#call] whether any process accepts connections
      # @yield begins the stop
      def request(accepting, now_s = EventLoop.now_s, &begin_stop)
        return if @begin_stop

        @accepting = accepting
        @begin_stop = begin_stop
        delay_s = @listeners.sockets.empty? ? 0 : @delay_s
        @log.info("stopping after stop_delay_s; requests are served until then", seconds: delay_s) if delay_s.positive?
        @due_at = now_s + delay_s
        @until_s = @due_at + ACCEPT_S
        tick(now_s)
      end

      # The stop has begun in another way.
      def cancel
        @begin_stop ||= -> {}
        @due_at = nil
      end

      def ios = []

      def tick(now_s)
        return unless @due_at && now_s >= @due_at
        return wait(now_s) if now_s < @until_s && !@listeners.close_empty && @accepting.call

        @due_at = nil
        @begin_stop.call
      end

      private

      def wait(now_s)
        @log.info("accepting the connections that have arrived") unless @waits
        @waits = true
        @due_at = now_s + CHECK_EVERY_S
      end
    end
  end
end
