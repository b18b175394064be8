# frozen_string_literal: true

require "io/nonblock"
require "json"
require_relative "../native"
require_relative "event_loop"
require_relative "restart_policy"
require_relative "service_output"
require_relative "worker_report"

module Chaton
  class Supervisor
    # The process of one `service` line, which has a process group of its own. When it ends, what is left of the group
    # is killed and it is started again; the pause before that grows as with workers, and it is never given up. The
    # kernel sends it TERM when this process ends in whatever way.
    class ServiceProcess
      attr_reader :pid

      # @param open_files [Array<Integer>] its limits
      def initialize(line, plan, environment:, open_files:, log:)
        @line = line
        @plan = plan
        @environment = environment.select { |_, value| value.valid_encoding? }
        @open_files = open_files
        @log = log
        @policy = RestartPolicy.new(delay_s: plan.restart_delay_s, delay_max_s: plan.restart_delay_max_s,
                                    count: plan.crash_loop_count, window_s: plan.crash_loop_window_s)
        @start_at = EventLoop.now_s
        @starts = 0
      end

      def alive? = !@pid.nil?

      def ios = @output && !@output.io.closed? ? [@output.io] : []

      def readable(now_s)
        @output.close(now_s) unless @output.read(now_s)
      end

      def due_at = [@start_at, @kill_at].compact.min

      # @param input [IO] becomes its standard input
      def tick(now_s, input)
        kill if @kill_at && now_s >= @kill_at
        start(now_s, input) if @start_at && now_s >= @start_at
      end

      # Ends it for good.
      def stop(now_s)
        @start_at = nil
        @stopping = true
        terminate(now_s)
      end

      # Ends it, so that it is started again.
      def restart(now_s)
        @asked = alive?
        terminate(now_s)
      end

      # Kills the whole group.
      def kill
        @kill_at = nil
        signal("KILL")
      end

      def ended(how, now_s)
        kill
        @output.close(now_s)
        @pid = nil
        return @log.info("service stopped", service: @line.name, status: how) if @stopping

        follow(now_s, status: how)
      end

      def status(now_s)
        { name: @line.name, state: alive? ? "running" : "waiting", pid: @pid,
          age_s: alive? ? (now_s - @started_at).round(3) : nil, starts: @starts }
      end

      private

      def start(now_s, input)
        @start_at = nil
        @starts += 1
        ours, theirs = IO.pipe
        theirs.nonblock = false
        settings = { command: @line.command, directory: @plan.root, environment: @environment, open_files: @open_files }
        pid = Native.spawn(JSON.generate(settings), input.fileno, theirs.fileno)
        return refused(pid, ours, now_s) if pid.negative?

        @pid = pid
        @started_at = now_s
        @output = ServiceOutput.new(@line.name, ours, lines_max: @plan.service_lines_max, log: @log)
        @log.info("service started", service: @line.name, pid: pid)
      rescue SystemCallError => e
        follow(now_s, reason: e.message)
      ensure
        theirs&.close
      end

      def refused(number, pipe, now_s)
        pipe.close
        error = SystemCallError.new(@line.command.first, -number)
        follow(now_s, reason: error.is_a?(Errno::ENOENT) ? "command not found: #{@line.command.first}" : error.message)
      end

      # The first replacement of a worker has no pause. A command that cannot run at all must not be tried twice at
      # once.
      def follow(now_s, **fields)
        asked, @asked = @asked, false
        delay_s = asked ? 0.0 : [@policy.died(now_s).delay_s, @plan.restart_delay_s].max
        @start_at = now_s + delay_s
        return @log.info("service ended, to be started again", service: @line.name, **fields) if asked

        @log.error("service does not run", service: @line.name, **fields, restart_in_s: delay_s)
      end

      def terminate(now_s)
        return unless alive?

        signal("TERM")
        @kill_at = now_s + @plan.service_stop_s
      end

      def signal(name)
        Process.kill(name, -@pid) if @pid
      rescue Errno::ESRCH, Errno::EPERM
        nil
      end
    end
  end
end
