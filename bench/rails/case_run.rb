# frozen_string_literal: true

require_relative "../support/case_run"
require_relative "../support/redis_server"
require_relative "../support/wrk"

module Bench
  module Rails
    # What deploys, a kill and jobs that compute do to one side, and its memory. Each side is alone on the machine, with
    # a Redis of its own.
    class CaseRun < Bench::CaseRun
      DEPLOYS = 3
      DEPLOY_CLIENTS = 20
      JOBS = 100
      # So many have left a note when the process that runs them is killed.
      BEFORE_KILL = 20
      # A job is lost when it has left no note this long after the last note of another. Chaton runs the jobs of a
      # process that has died again within seconds.
      COMES_BACK_S = 20
      COMPUTING = 4
      COMPUTES_S = 4
      CLIENTS = 10
      PAGE = "/messages"
      PROBE_EVERY_S = 0.05

      private

      def measure(kind)
        redis = RedisServer.new.start
        folder = Dir.mktmpdir("chaton-bench-rails")
        stack = kind.new(redis, folder).start
        { **deploys(stack), **kill(stack), **beside_jobs(stack), **memory(stack), versions: stack.versions }
      ensure
        stack&.stop
        redis&.stop
        FileUtils.rm_rf(folder) if folder
      end

      def facts = { commands: @case.servers.to_h { |kind| [kind.label, kind.command_line] } }

      # Traffic goes on, in runs of whole seconds, until the last deploy is over.
      def deploys(stack)
        deploying = Thread.new { DEPLOYS.times { stack.deploy } }
        runs = []
        runs << Wrk.new(stack.url(PAGE), connections: DEPLOY_CLIENTS, seconds: 4).run while deploying.alive?
        deploying.join
        { failed: runs.sum(&:errors), requests: runs.sum(&:requests) }
      end

      def kill(stack)
        (1..JOBS).each { |number| stack.enqueue("Note", number) }
        sleep PROBE_EVERY_S until stack.noted.size > BEFORE_KILL
        stack.kill_jobs
        seen, since = stack.noted.size, now
        while (missing = (1..JOBS).to_a - (noted = stack.noted)).any? && now - since < COMES_BACK_S
          seen, since = noted.size, now if noted.size > seen
          sleep PROBE_EVERY_S
        end
        { lost: missing.size, jobs: JOBS }
      end

      def beside_jobs(stack)
        COMPUTING.times { stack.enqueue("Compute", COMPUTES_S) }
        { p99_ms: Wrk.new(stack.url(PAGE), connections: CLIENTS, seconds: COMPUTES_S).run.p99_ms }
      end

      def memory(stack)
        by_process = stack.memory.transform_values { |mb| mb.round(1) }
        { pss_mb: by_process.values.sum.round(1), processes: by_process }
      end

      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
