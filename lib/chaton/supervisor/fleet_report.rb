# frozen_string_literal: true

require_relative "event_loop"
require_relative "restart_policy"

module Chaton
  class Supervisor
    # Says what happens to workers, in the log.
    class FleetReport
      # @param status [Process::Status]
      # @return [String] how a process ended
      def self.describe(status)
        return "exit #{status.exitstatus}" if status.exited?

        "killed by SIG#{Signal.signame(status.termsig)}#{" (core dumped)" if status.coredump?}"
      end

      # @param status [Process::Status]
      # @return [String] the same, as it is noted of a job that may have caused it
      def self.cause(status)
        status.exited? ? "exit #{status.exitstatus}" : "SIG#{Signal.signame(status.termsig)}"
      end

      # Ends that a native extension may cause which keeps the address of an object that was moved.
      CRASHES = /SIG(?:SEGV|BUS|ABRT)/

      # @param log [Telemetry::Log]
      # @param compacted [Boolean] whether objects were moved before the first worker was forked
      def initialize(log, compacted: false)
        @log = log
        @compacted = compacted && GC.respond_to?(:compact)
      end

      # @param child [Child]
      # @return [void]
      def ready(child)
        boot_s = (EventLoop.now_s - child.forked_at_s).round(3)
        @log.info("worker ready", **facts(child), roles: child.roles.join("+"), generation: child.origin.generation,
                                                  boot_s: boot_s)
      end

      # @param child [Child]
      # @param fault [String]
      # @return [void]
      def killed(child, fault)
        @log.error("worker killed: #{fault}", **facts(child))
      end

      # @param child [Child]
      # @param how [String] its end
      # @param asked [Boolean] whether it was told to stop
      # @param verdict [RestartPolicy::Again, RestartPolicy::Stop, nil] what follows
      # @return [void]
      def died(child, how, asked, verdict)
        return @log.info("worker stopped", **facts(child), status: how) if asked

        reason = child.reason
        fields = { **facts(child), status: how, reason: reason }.compact
        @log.error(child.served? ? "worker died" : "worker did not become ready", **fields, **next_step(verdict))
        suspect_compaction(child) if how.match?(CRASHES)
        give_up(child, verdict, reason) if verdict.is_a?(RestartPolicy::Stop)
      end

      private

      def facts(child)
        { worker: child.index, pid: child.pid.to_i }
      end

      def next_step(verdict)
        verdict.is_a?(RestartPolicy::Again) ? { restart_in_s: verdict.delay_s } : {}
      end

      # Once: the next crash has the same cause, or none of ours.
      def suspect_compaction(child)
        return unless @compacted

        @compacted = false
        @log.warn("should this crash come from a native extension that does not bear its objects being moved, " \
                  "`memory { compact false }` ends it: try it when the line above names no other cause", **facts(child))
      end

      def give_up(child, verdict, reason)
        @log.error("worker #{child.index} failed to boot #{verdict.failures} times in a row and is not started " \
                   "again; the others go on serving. Mend the cause, then send SIGUSR1 (or run `chaton restart`)",
                   worker: child.index, reason: reason || "see the lines above")
      end
    end
  end
end
