# frozen_string_literal: true

require "socket"
require_relative "event_loop"

module Chaton
  class Supervisor
    # Reports the server's state to the service manager as sd_notify(3) does: one datagram to the socket in
    # NOTIFY_SOCKET. Without that variable it does nothing. A source of the event loop, for the watchdog.
    class SystemdNotify
      def initialize(env = ENV, pid: Process.pid)
        path = env["NOTIFY_SOCKET"]
        # "@" stands for the zero byte of an abstract address.
        @address = path && !path.empty? ? Addrinfo.unix(path.sub(/\A@/, "\0"), :DGRAM) : nil
        # Opened once: a watchdog that hears nothing, because no descriptor is free, would have the server killed.
        @socket = Socket.new(:UNIX, :DGRAM) if @address
        @interval_s = watchdog_interval_s(env, pid)
        @due_at = @interval_s && EventLoop.now_s
      end

      # @param status [String] one line for `systemctl status`
      def ready(status)
        send("READY=1", "STATUS=#{status}", "MAINPID=#{Process.pid}", *watchdog)
      end

      # The watchdog hears nothing while the program starts again and loads the application, for at most so long.
      def starting_again(within_s)
        send("WATCHDOG=1", "WATCHDOG_USEC=#{((within_s * 1_000_000) + (@interval_s * 2_000_000)).to_i}") if @interval_s
      end

      def reloading
        now_us = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
        send("RELOADING=1", "MONOTONIC_USEC=#{now_us}")
      end

      def stopping = send("STOPPING=1")

      def ios = []

      # @return [Float, nil] when the next message to the watchdog is due
      attr_reader :due_at

      def tick(now_s)
        return unless @due_at && now_s >= @due_at

        send("WATCHDOG=1")
        @due_at = now_s + @interval_s
      end

      # Closes the descriptor in a forked child.
      def close_in_child = @socket&.close

      private

      # The limit of the unit again, after {#starting_again}.
      def watchdog = @interval_s ? ["WATCHDOG_USEC=#{(@interval_s * 2_000_000).to_i}"] : []

      def watchdog_interval_s(env, pid)
        usec = env["WATCHDOG_USEC"].to_i
        return unless @address && usec.positive?
        return if env["WATCHDOG_PID"] && env["WATCHDOG_PID"].to_i != pid

        # The manual of sd_watchdog_enabled(3) advises half the limit.
        usec / 2_000_000.0
      end

      def send(*lines)
        @socket&.sendmsg_nonblock(lines.join("\n"), 0, @address, exception: false)
      rescue SystemCallError
        # The service manager is not there or does not read. That must not stop the server.
        nil
      end
    end
  end
end
