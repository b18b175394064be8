# frozen_string_literal: true

require "fileutils"
require "json"
require "timeout"
require_relative "../support/cpu_clock"

module Bench
  module Jobs
    # The parts of one slice: an empty store, a client, and a server that reports when jobs have ended.
    class Stage
      # On a disk, because SQLite's writes have to wait for a disk.
      FOLDER = File.expand_path("../../tmp/bench", __dir__)
      LIMIT_S = 300
      BOOT_LIMIT_S = 60
      # Within this time an idle server acknowledges the jobs that have ended.
      ACK_S = 0.4
      PROBE_EVERY_S = 0.5
      QUEUE = "queue:default"
      # The parked queue, from which the server takes no jobs.
      PARKED = "bench:parked"

      attr_reader :server, :redis, :folder

      # @param server [JobServer]
      # @param redis [RedisServer]
      # @param port [Integer] by which the server reaches Redis
      def self.open(server, redis, port: redis.port)
        stage = new(server, redis, port)
        yield stage
      ensure
        stage&.close
      end

      def initialize(server, redis, port)
        @server = server
        @redis = redis
        @port = port
        FileUtils.mkdir_p(FOLDER)
        @folder = Dir.mktmpdir("jobs", FOLDER)
        @redis.call("FLUSHALL")
        env, *words = server.client(@folder, redis.url)
        @client = IO.popen([env, *words], "r+", chdir: @folder, pgroup: true)
      end

      # @return [Hash{Symbol => Object}] the client's result
      def ask(*words)
        @client.puts(words.join(" "))
        line = Timeout.timeout(LIMIT_S) { @client.gets } or raise "the client of #{server.label} has ended"
        JSON.parse(line, symbolize_names: true)
      end

      # Starts the server, which reports at each goal.
      # @param goals [Array<Integer>] numbers of jobs that have ended since the start of the process
      # @param env [Hash{String => String}]
      def serve(goals, env = {})
        path = File.join(@folder, "pipe")
        File.mkfifo(path)
        # The pipe is open for writing too, so that reading does not end when the job process closes it.
        @pipe = File.open(path, "r+")
        server.start(@folder, redis.url(@port), env.merge("BENCH_GOALS" => goals.join(","), "BENCH_PIPE" => path))
      end

      # Waits for the next goal.
      # @return [Hash{Symbol => Object}] the job process's report, see apps/tally.rb
      def wait_for_goal(limit_s = LIMIT_S)
        deadline = now_s + limit_s
        until @pipe.wait_readable(PROBE_EVERY_S)
          raise "#{server.label} has ended:\n#{server.log}" if server.ended?
          raise "#{server.label} has not done its jobs within #{limit_s} s:\n#{server.log}" if now_s > deadline
        end
        JSON.parse(@pipe.gets, symbolize_names: true)
      end

      # Renames the queue, so that the server finds no jobs until {#release}.
      def park = redis.call("RENAME", QUEUE, PARKED)

      # Returns all parked jobs to the queue at once.
      # @return [Integer] nanoseconds of the clock just before
      def release = now_ns.tap { redis.call("RENAME", PARKED, QUEUE) }

      # @return [Hash{Symbol => Object}] processor time of the server, its threads, and Redis
      def reading
        pids = server.tree.pids
        { cpu_s: CpuClock.seconds(pids), threads: CpuClock.threads(pids), redis_s: CpuClock.seconds([redis.pid]) }
      end

      def wait_for_acks = sleep(ACK_S)

      # Stops the server and checks in the store that all jobs were done.
      # @param jobs [Integer] the expected number
      # @raise [RuntimeError] when a job was lost or failed, because such a slice measures nothing
      def finish(jobs)
        server.stop
        stats = ask("stats")
        wrong = stats.slice(:failed, :enqueued, :retries, :dead).reject { |_, count| count.zero? }
        return if wrong.empty? && stats[:processed] == jobs
        raise "#{server.label} should have done #{jobs} jobs, and nothing should be left: #{stats}\n#{server.log}"
      end

      def close
        server.stop
        @client.close
        @pipe&.close
        FileUtils.rm_rf(@folder)
      end

      def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    end
  end
end
