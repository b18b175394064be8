# frozen_string_literal: true

require_relative "event_loop"
require_relative "restart_policy"

module Chaton
  class Supervisor
    # Logs what happens to workers.
    class WorkerReport
      # @return [String] how a process ended, for the log
      def self.describe(status)
        return "exit #{status.exitstatus}" if status.exited?

        "killed by SIG#{Signal.signame(status.termsig)}#{" (core dumped)" if status.coredump?}"
      end

      # @return [String] the same, as it is stored with a job that may have caused it
      def self.cause(status)
        status.exited? ? "exit #{status.exitstatus}" : "SIG#{Signal.signame(status.termsig)}"
      end

      # Ends that a native extension may cause if it keeps the address of an object that compaction moved.
      CRASHES = /SIG(?:SEGV|BUS|ABRT)/

      # A worker that crashes within this time after its fork (seconds) may have used an object that was moved: what an
      # application uses at all, it uses in its first requests. Later crashes have other causes more often than not.
      EARLY_S = 60.0

      # @return [Boolean] whether the code should be loaded again without compaction
      attr_reader :compaction_suspected

      # @param compacted [Boolean] whether the heap was compacted before the first fork
      def initialize(log, compacted: false)
        @log = log
        @compacted = compacted && GC.respond_to?(:compact)
        @compaction_suspected = false
      end

      def ready(child)
        boot_s = (EventLoop.now_s - child.forked_at_s).round(3)
        @log.info("worker ready", **facts(child), roles: child.roles.join("+"), generation: child.forker.generation,
                                                  boot_s: boot_s)
      end

      # @param child [Child]
      # @param reason [String]
      def killed(child, reason) = @log.error("worker killed: #{reason}", **facts(child))

      # @param how [String] how it ended
      # @param asked [Boolean] whether it was asked to stop
      # @param verdict [RestartPolicy::RestartAfter, RestartPolicy::GiveUp, nil] what follows
      def ended(child, how, asked, verdict)
        asked ? @log.info("worker stopped", **facts(child), status: how) : died(child, how, verdict)
        payload = { **facts(child), roles: child.roles, status: how, asked: asked, reason: child.reason }
        child.forker.worker_ended(payload)
      end

      private

      def died(child, how, verdict)
        reason = child.reason
        fields = { **facts(child), status: how, reason: (reason unless reason == how) }.compact
        @log.error(child.served? ? "worker died" : "worker did not become ready", **fields, **next_step(verdict))
        suspect_compaction(child) if how.match?(CRASHES)
        give_up(child, verdict, reason) if verdict.is_a?(RestartPolicy::GiveUp)
      end

      def facts(child) = { worker: child.index, pid: child.pid.to_i }

      def next_step(verdict)
        verdict.is_a?(RestartPolicy::RestartAfter) ? { restart_in_s: verdict.delay_s } : {}
      end

      # Once: repeating it with every crash adds nothing.
      def suspect_compaction(child)
        return unless @compacted

        @compacted = false
        @compaction_suspected = EventLoop.now_s - child.forked_at_s <= EARLY_S
        what = @compaction_suspected ? "The code is loaded again without it; to start so, write" : "Try"
        @log.warn("if the line above names no other cause, a native extension may not support heap compaction. " \
                  "#{what} `memory { compact false }`", **facts(child))
      end

      def give_up(child, verdict, reason)
        @log.error("worker #{child.index} failed to boot #{verdict.failures} times in a row and is not started " \
                   "again; the other workers go on serving. Fix the cause, then send SIGUSR1 (or run " \
                   "`chaton restart`)", worker: child.index, reason: reason || "see the lines above")
      end
    end
  end
end
