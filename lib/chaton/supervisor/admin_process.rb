# frozen_string_literal: true

require "json"
require_relative "../native"
require_relative "../worker/forked_child"
require_relative "event_loop"
require_relative "restart_policy"
require_relative "signal_commands"

module Chaton
  class Supervisor
    # The process of the admin endpoint: a fork of the supervisor, with whose memory it shares what neither writes to.
    # It serves in Rust and runs no Ruby code. A pipe brings it the settings and then reports, a line of JSON each. It
    # ends with the pipe, so also when the main process is killed, and not by TERM, which a service manager sends to
    # all processes at once. When it dies it is started again; the main process keeps the sockets, so that clients wait.
    class AdminProcess
      # The longest pause before it is started again, shorter than that of a worker: Kubernetes gives a probe 3 tries
      # 10 s apart by default, and a start costs only some 50 ms of CPU time.
      RESTART_DELAY_MAX_S = 2.0

      attr_reader :pid

      # @yield in the process, closes what the settings do not name
      def initialize(plan, settings, log:, &close_others)
        @plan = plan
        @settings = settings
        @close_others = close_others
        @log = log
        @policy = RestartPolicy.new(delay_s: plan.restart_delay_s,
                                    delay_max_s: [plan.restart_delay_max_s, RESTART_DELAY_MAX_S].min,
                                    count: plan.crash_loop_count, window_s: plan.crash_loop_window_s)
        @unsent = +""
        @first = true
        start
      end

      # @return [Float, nil] when it is started again (monotonic s)
      attr_reader :due_at

      def writers = @unsent.empty? || @input.nil? || @input.closed? ? [] : [@input]

      def writable(_io) = flush

      def tick(now_s)
        start if @due_at && now_s >= @due_at
      end

      # Sends a report, unless the one before is still being sent.
      #
      # @param line [String] JSON
      def report(line)
        return false if @pid.nil? || !@unsent.empty?

        @unsent << line << "\n"
        flush
        true
      end

      # It has ended.
      def ended(how, now_s)
        @pid = nil
        @input&.close
        delay_s = @policy.died(now_s).delay_s
        @due_at = now_s + delay_s
        @log.error("the admin endpoint's process died", status: how, restart_in_s: delay_s)
      end

      # Ends it for good.
      def stop
        close_in_child
        @due_at = nil
        return unless @pid

        Process.kill("KILL", @pid)
        Process.wait(@pid)
        @pid = nil
      rescue Errno::ESRCH, Errno::ECHILD
        @pid = nil
      end

      # Closes this process's end of the pipe in a forked child, which would keep the process alive.
      def close_in_child = @input&.close

      private

      def start
        @due_at = nil
        theirs, @input = IO.pipe
        @pid = Worker::ForkedChild.ours { fork { live(theirs) } }
        @unsent = "#{JSON.generate({ first: @first, **@settings })}\n"
        @first = false
        flush
      rescue SystemCallError => e
        ended("it could not be started: #{e.message}", EventLoop.now_s)
      ensure
        theirs&.close
      end

      # Never returns: handlers of `at_exit` are the main process's.
      def live(theirs)
        SignalCommands.signals(@plan).each { |name| trap(name, "DEFAULT") }
        %w[TERM INT].each { |name| trap(name, "IGNORE") }
        Process.setpgid(0, 0)
        @input.close
        $stdin.reopen(theirs)
        @close_others.call
        Process.setproctitle("chaton admin [#{@plan.tag}]")
        Native::Admin.run
        exit!(0)
      rescue Exception => e # rubocop:disable Lint/RescueException
        warn e.full_message
        exit!(1)
      end

      # What does not fit into the pipe waits for the next turn of the event loop.
      def flush
        until @unsent.empty?
          written = @input.write_nonblock(@unsent, exception: false)
          return if written == :wait_writable

          @unsent = @unsent.byteslice(written..)
        end
      rescue SystemCallError
        # It has ended, and gets the settings and the next report when it is started again.
        @unsent = +""
      end
    end
  end
end
