# frozen_string_literal: true

require_relative "../support/disk"
require_relative "drain"

module Bench
  module Jobs
    # One slice: single jobs come to an idle server after pauses of random length. Measured is the time from just
    # before `perform_async` is called in one process to the first line of `perform` in another one. With a file as
    # the store, what the disk itself takes to keep something is measured just before and after.
    class Latency
      PAUSES_S = [0.005, 0.05].freeze
      # The pauses are the same for all.
      SEED = 20_261_121

      # @param a_case [Case]
      # @param server [JobServer]
      # @param redis [RedisServer]
      def initialize(a_case, server, redis, **)
        @case = a_case
        @server = server
        @redis = redis
      end

      # @return [Hash{Symbol => Object}]
      def measure
        Stage.open(@server, @redis) do |stage|
          stage.ask("noops", Drain::WARM_UP)
          stage.serve([Drain::WARM_UP, Drain::WARM_UP + @case.jobs])
          stage.told(Stage::BOOT_LIMIT_S)
          stage.settle
          disk_ms = disk
          stage.ask("pulses", @case.jobs, *PAUSES_S, SEED)
          told = stage.told
          disk_ms += disk
          stage.finish(Drain::WARM_UP + @case.jobs)
          { **figures(told[:late_ns].sort.map { |late| late / 1e6 }), **disk_figures(disk_ms.sort) }
        end
      end

      private

      def disk = @server.sqlite? ? Disk.sync_ms(Stage::PLACE) : []

      def figures(late_ms)
        { server: @server.label, jobs: late_ms.size, start_p50_ms: share(late_ms, 0.5),
          start_p99_ms: share(late_ms, 0.99), start_max_ms: share(late_ms, 1.0) }
      end

      def disk_figures(disk_ms)
        return {} if disk_ms.empty?
        { disk_p50_ms: share(disk_ms, 0.5), disk_p99_ms: share(disk_ms, 0.99) }
      end

      # Nearest rank.
      def share(sorted, part) = sorted[[(sorted.size * part).ceil - 1, 0].max].round(3)
    end
  end
end
