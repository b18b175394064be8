# frozen_string_literal: true

require_relative "newborns"
require_relative "stage"

module Bench
  module Jobs
    # One slice: a server that is up and warm gets a queue full of jobs at once. Measured is the time from just before
    # that to the end of the last job's `perform`, by the clock of the process that runs it; what the server spends
    # includes settling them.
    class Drain
      # Jobs before those that count: enough for Ruby to have collected once what booting left behind.
      WARM_UP = 5000

      # @param a_case [Case]
      # @param server [JobServer]
      # @param redis [RedisServer]
      # @param port [Integer] by which the server reaches Redis
      def initialize(a_case, server, redis, port: redis.port)
        @case = a_case
        @server = server
        @redis = redis
        @port = port
        @warm_up = a_case.job == :nap ? a_case.jobs : WARM_UP
      end

      # @return [Hash{Symbol => Object}]
      def measure
        Stage.open(@server, @redis, port: @port) do |stage|
          @stage = stage
          boot
          before = stage.reading
          newborns = @case.watch ? Newborns.new(@server.pid) : nil
          started_ns = @server.sqlite? ? stage.ask("resume")[:at_ns] : stage.release
          ended = stage.told
          stage.settle
          after = stage.reading
          memory = @server.tree.memory_mb
          born = newborns&.count
          stage.finish(@warm_up + @case.jobs)
          { **figures(started_ns, ended), **cost(before, after), **memory, **(@case.watch ? created(ended, born) : {}) }
        end
      end

      private

      # Leaves a warm server with nothing to do, and the jobs aside.
      def boot
        fill_and_park unless @server.sqlite?
        fill(@warm_up)
        @stage.serve([@warm_up, @warm_up + @case.jobs], @case.watch ? { "BENCH_WATCH" => "1" } : {})
        @warm = @stage.told(Stage::BOOT_LIMIT_S)
        @stage.settle
        return unless @server.sqlite?
        @stage.ask("pause")
        fill(@case.jobs)
        @stage.settle
      end

      def fill_and_park
        fill(@case.jobs)
        @stage.park
      end

      def fill(count) = @case.job == :nap ? @stage.ask("naps", count, @case.nap_s) : @stage.ask("noops", count)

      def figures(started_ns, ended)
        seconds = (ended[:at_ns] - started_ns) / 1e9
        figures = { server: @server.label, jobs: @case.jobs, drain_ms: (seconds * 1000).round(3),
                    rate: (@case.jobs / seconds).round(1) }
        figures[:ideal] = (@case.nap_s / seconds).round(4) if @case.job == :nap
        figures
      end

      def cost(before, after)
        threads = CpuClock.between(before[:threads], after[:threads])
        { worker_cpu_us: per_job(after[:cpu_s] - before[:cpu_s]),
          redis_cpu_us: per_job(after[:redis_s] - before[:redis_s]),
          threads_cpu_us: threads.transform_values { |seconds| per_job(seconds) }.select { |_, spent| spent >= 0.01 } }
      end

      def created(ended, born)
        { threads_created: [ended[:threads] - @warm[:threads], born.to_i].max, threads_created_kernel: born,
          fibers_created: ended[:fibers] - @warm[:fibers], fiber_switches: ended[:switches] - @warm[:switches] }
      end

      def per_job(seconds) = (seconds * 1e6 / @case.jobs).round(3)
    end
  end
end
