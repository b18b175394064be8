# frozen_string_literal: true

require_relative "../support/disk"
require_relative "../support/numbers"
require_relative "drain"

module Bench
  module Jobs
    # One slice: single jobs are enqueued for an idle server after pauses of random length. The measured time begins
    # just before `perform_async` in one process and ends at the first line of `perform` in another. When the store is
    # a file, the disk's own time for a durable write is measured just before and after.
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
          stage.ask("pulses", @case.jobs, *PAUSES_S, SEED)
          result = stage.wait_for_goal
          disk_ms += disk
          stage.finish(Drain::WARM_UP + @case.jobs)
          { **figures(result[:late_ns].sort.map { |late| late / 1e6 }), **disk_figures(disk_ms.sort) }
        end
      end

      private

      def disk = @server.on_disk? ? Disk.sync_ms(Stage::FOLDER) : []

      def figures(late_ms)
        { server: @server.label, jobs: late_ms.size, start_p50_ms: Bench.percentile(late_ms, 0.5),
          start_p99_ms: Bench.percentile(late_ms, 0.99), start_max_ms: Bench.percentile(late_ms, 1.0) }
      end

      def disk_figures(disk_ms)
        return {} if disk_ms.empty?
        { disk_p50_ms: Bench.percentile(disk_ms, 0.5), disk_p99_ms: Bench.percentile(disk_ms, 0.99) }
      end
    end
  end
end
