# frozen_string_literal: true

module Chaton
  class Supervisor
    # Decides from pings and answers whether a worker is *alive*. Pure: it gets the time and says what is due.
    #
    # A worker answers a ping twice: its Rust side at once, and a Ruby thread as soon as it gets the GVL. Only the
    # second answer counts as alive; the first one tells in the log which half has stopped.
    #
    # The age of the oldest *unanswered ping* is measured, not the time since the last answer: after the supervisor
    # itself was stopped for a while (SIGSTOP, a suspended laptop) no ping is overdue, and no worker is killed.
    class Heartbeat
      # A ping every quarter of the timeout: a loss is detected after 1.25 × the timeout at the latest.
      PINGS_PER_TIMEOUT = 4

      # @param timeout_s [Numeric] longest silence; 0 switches the check off
      def initialize(timeout_s, now_s)
        @timeout_s = timeout_s.to_f
        @next_ping_at = now_s
        @unanswered_since = nil
        @rust_unanswered_since = nil
        @ruby_seen_at = now_s
      end

      # @return [Boolean] whether pings are sent at all
      def on? = @timeout_s.positive?

      def due_at
        return unless on?

        [@next_ping_at, @unanswered_since && (@unanswered_since + @timeout_s)].compact.min
      end

      # @return [Boolean] whether a ping should be sent now
      def ping?(now_s) = on? && now_s >= @next_ping_at

      # Notes that a ping was sent.
      # @param now_s [Float] monotonic
      def pinged(now_s)
        @unanswered_since ||= now_s
        @rust_unanswered_since ||= now_s
        @next_ping_at = now_s + (@timeout_s / PINGS_PER_TIMEOUT)
      end

      def rust_answered
        @rust_unanswered_since = nil
      end

      # Notes that a Ruby thread of the worker has answered.
      # @param now_s [Float] monotonic
      def ruby_answered(now_s)
        @ruby_seen_at = now_s
        @unanswered_since = nil
      end

      # @return [Boolean] whether the worker counts as lost
      def lost?(now_s) = on? && !@unanswered_since.nil? && now_s - @unanswered_since >= @timeout_s

      # @return [Float] seconds since a Ruby thread of the worker last answered
      def silent_s(now_s) = now_s - @ruby_seen_at

      # A Rust side that runs leaves at most the latest ping unanswered. One that answered the first ping and was
      # stopped before Ruby answered it (SIGSTOP) has left older ones.
      #
      # @return [Boolean] whether the Rust side still answers
      def rust_alive?(now_s)
        @rust_unanswered_since.nil? || now_s - @rust_unanswered_since < @timeout_s / 2
      end
    end
  end
end
