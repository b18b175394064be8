# frozen_string_literal: true

require_relative "../support/disk"
require_relative "../support/numbers"
require_relative "drain"

module Bench
  module Jobs
    # One slice: single jobs are enqueued for an idle server after pauses of random length. The measured time begins
    # just before `perform_async` in one process and ends at the first line of `perform` in another. The part that
    # `perform_async` takes is measured too: in a store that makes each job durable it waits for the disk. The disk
    # is timed alone just before and after.
    class Latency
      PAUSES_S = [0.005, 0.05].freeze
      # All servers get the same pauses.
      SEED = 20_261_121

      # @param a_case [Case]
      # @param server [JobServer]
      # @param redis [RedisServer]
      def initialize(a_case, server, redis, **)
        @case = a_case
        @server = server
        @redis = redis
      end

      def measure
        Stage.open(@server, @redis) do |stage|
          stage.ask("noops", Drain::WARM_UP)
          stage.serve([Drain::WARM_UP, Drain::WARM_UP + @case.jobs])
          stage.wait_for_goal(Stage::BOOT_LIMIT_S)
          stage.wait_for_acks
          disk_ms = disk
          pushes = stage.ask("pulses", @case.jobs, *PAUSES_S, SEED)
          result = stage.wait_for_goal
          disk_ms += disk
          stage.finish(Drain::WARM_UP + @case.jobs)
          { server: @server.label, jobs: @case.jobs, **figures("start", result[:late_ns]),
            **figures("push", pushes[:push_ns]), **disk_figures(disk_ms.sort) }
        end
      end

      private

      def disk = @server.on_disk? ? Disk.sync_ms(Stage::FOLDER) : []

      def figures(name, times_ns)
        times_ms = times_ns.sort.map { |time| time / 1e6 }
        { p50: 0.5, p99: 0.99, max: 1.0 }
          .to_h { |key, part| [:"#{name}_#{key}_ms", Bench.percentile(times_ms, part)] }
      end

      def disk_figures(disk_ms)
        return {} if disk_ms.empty?
        { disk_p50_ms: Bench.percentile(disk_ms, 0.5), disk_p99_ms: Bench.percentile(disk_ms, 0.99) }
      end
    end
  end
end
