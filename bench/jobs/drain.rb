# frozen_string_literal: true

require_relative "created_threads"
require_relative "stage"

module Bench
  module Jobs
    # One slice: the queue of a warm server is filled at once. The measured time begins just before that and ends with
    # the last job's `perform`, by the clock of the process that runs it. The server's CPU time includes acknowledging.
    class Drain
      # Jobs before the measured ones: enough for Ruby to collect the garbage of the boot.
      WARM_UP = 5000
      # So many of them run after the report of the warm-up. The job that writes it takes a hundred times as long as the
      # others, and a server that measures the length of its jobs must not find that one last.
      AFTER_REPORT = 100

      # @param a_case [Case]
      # @param server [JobServer]
      # @param redis [RedisServer]
      # @param port [Integer] by which the server reaches Redis
      def initialize(a_case, server, redis, port: redis.port)
        @case = a_case
        @server = server
        @redis = redis
        @port = port
        @jobs = server.jobs || a_case.jobs
        @warm_up = server.warm_up || (a_case.job == :nap ? @jobs : WARM_UP)
      end

      def measure
        Stage.open(@server, @redis, port: @port) do |stage|
          @stage = stage
          boot
          before = stage.reading
          created_threads = @case.watch ? CreatedThreads.new(@server.pid) : nil
          started_ns = begin_drain
          ended = @server.observed { stage.wait_for_goal }
          stage.wait_for_acks
          after = stage.reading
          memory = @server.tree.memory_mb
          created_count = created_threads&.count
          stage.finish(@warm_up + @jobs)
          { **figures(started_ns, ended), **cost(before, after), **memory,
**(@case.watch ? created(ended, created_count) : {}) }
        end
      end

      private

      # Warms the server up, and leaves the measured jobs parked or in a paused queue, or it has begun with them.
      def boot
        fill_and_park unless @server.on_disk?
        fill(@warm_up)
        report = @server.warm_up || (@warm_up - AFTER_REPORT)
        @stage.serve([report, @warm_up + @jobs], @case.watch ? { "BENCH_WATCH" => "1" } : {})
        @warm = @stage.wait_for_goal(Stage::BOOT_LIMIT_S)
        return if @server.warm_up
        @stage.wait_for_acks
        return unless @server.on_disk?
        @stage.ask("pause")
        fill(@jobs)
        @stage.wait_for_acks
      end

      def fill_and_park
        fill(@jobs)
        @stage.park unless @server.warm_up
      end

      # @return [Integer] nanoseconds of the clock
      def begin_drain
        return @warm[:at_ns] if @server.warm_up
        @server.on_disk? ? @stage.ask("resume")[:at_ns] : @stage.release
      end

      def fill(count) = @case.job == :nap ? @stage.ask("naps", count, @case.nap_s) : @stage.ask("noops", count)

      def figures(started_ns, ended)
        seconds = (ended[:at_ns] - started_ns) / 1e9
        figures = { server: @server.label, jobs: @jobs, drain_ms: (seconds * 1000).round(3),
                    rate: (@jobs / seconds).round(1), **ended.slice(:claims, :claim_p50_ms, :claim_p99_ms) }
        figures[:ideal] = (@case.nap_s / seconds).round(4) if @case.job == :nap
        figures
      end

      def cost(before, after)
        threads = CpuClock.between(before[:threads], after[:threads])
        { worker_cpu_us: per_job(after[:cpu_s] - before[:cpu_s]),
          redis_cpu_us: per_job(after[:redis_s] - before[:redis_s]),
          threads_cpu_us: threads.transform_values { |seconds| per_job(seconds) }.select { |_, spent| spent >= 0.01 } }
      end

      def created(ended, created_count)
        { threads_created: [ended[:threads] - @warm[:threads], created_count.to_i].max,
          threads_created_kernel: created_count,
          fibers_created: ended[:fibers] - @warm[:fibers], fiber_switches: ended[:switches] - @warm[:switches] }
      end

      def per_job(seconds) = (seconds * 1e6 / @jobs).round(3)
    end
  end
end
