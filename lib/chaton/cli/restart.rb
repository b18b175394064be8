# frozen_string_literal: true

require_relative "server_command"

module Chaton
  class CLI
    # chaton restart: loads the code on disk; with --full also the configuration of the main process.
    class Restart < ServerCommand
      # Between two questions with --wait. The server cannot answer at the end, because one that starts again in place
      # closes its connections.
      POLL_S = 0.5
      # A restart has time limits for each worker, and this is more than they amount to with a hundred of them.
      WAIT_MAX_S = 3 * 3600.0

      def self.switches = ["--full", "--wait"]

      def run
        full = @arguments.switch?("--full")
        @asked_at_s = now_s
        answer = ask(full ? "restart" : "phased-restart")
        how = full ? "starts again in place" : "loads the new code"
        wait = @arguments.switch?("--wait")
        @out.puts "server #{answer["pid"]} #{how}#{"; `chaton status` shows how far it is" unless wait}"
        @out.flush
        @out.puts wait_until_over(answer["pid"]) if wait
        0
      end

      private

      # @return [String] what it came to
      # @raise [ControlError] when the old code goes on serving, or the server has ended
      def wait_until_over(pid)
        until (outcome = outcome(pid))
          raise ControlError, "the restart has not ended within #{WAIT_MAX_S.round} s" if waited_s > WAIT_MAX_S

          sleep POLL_S
        end
        outcome
      end

      # @return [String, nil] nil: it is not over
      def outcome(pid)
        # Before the question: a late answer must not look like a server that is younger than the restart.
        waited_s = self.waited_s
        status = status(pid)
        case status && status["state"]
        when "stopping" then raise ControlError, "server #{pid} is stopping"
        # Its process is the same; what is older is the program before the restart.
        when "running"
          status["uptime_s"] < waited_s ? "server #{pid} has started again" : of_workers(status["restart"])
        end
      end

      # @return [Hash{String=>Object}, nil] nil: it is starting again and does not listen yet
      def status(pid)
        ask("status")
      rescue ControlError
        raise ControlError, "server #{pid} has ended instead of starting again; its log says why" unless alive?(pid)
      end

      def of_workers(restart)
        state, reason = restart&.values_at("state", "reason")
        raise ControlError, "the restart was abandoned, the old code goes on serving: #{reason}" if state == "abandoned"

        "all workers have the new code" if state == "done"
      end

      def alive?(pid)
        Process.kill(0, pid)
        true
      rescue Errno::EPERM
        true
      rescue Errno::ESRCH
        false
      end

      def waited_s = now_s - @asked_at_s

      def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
