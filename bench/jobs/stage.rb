# frozen_string_literal: true

require "fileutils"
require "json"
require "timeout"
require_relative "../support/cpu_clock"

module Bench
  module Jobs
    # What one slice is measured with: an empty store, a client, and a server that tells when jobs have ended.
    class Stage
      # On a disk, where a file of SQLite has to wait for it.
      PLACE = File.expand_path("../../tmp/bench", __dir__)
      ANSWER_LIMIT_S = 300
      BOOT_LIMIT_S = 60
      # A server that has nothing to do becomes quiet, and settles what has ended.
      SETTLE_S = 0.4
      PROBE_EVERY_S = 0.5
      # Where jobs wait for the start.
      QUEUE = "queue:default"
      PARKED = "bench:parked"

      attr_reader :server, :redis

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
        FileUtils.mkdir_p(PLACE)
        @folder = Dir.mktmpdir("jobs", PLACE)
        @redis.call("FLUSHALL")
        env, *words = server.client(@folder, redis.url)
        @client = IO.popen([env, *words], "r+", chdir: @folder, pgroup: true)
      end

      # @return [Hash{Symbol => Object}] the client's answer
      def ask(*words)
        @client.puts(words.join(" "))
        line = Timeout.timeout(ANSWER_LIMIT_S) { @client.gets } or raise "the client of #{server.label} has ended"
        JSON.parse(line, symbolize_names: true)
      end

      # Starts the server, which tells when so many jobs have ended.
      # @param goals [Array<Integer>] each the number since the start of the process
      # @param env [Hash{String => String}]
      def serve(goals, env = {})
        path = File.join(@folder, "pipe")
        File.mkfifo(path)
        # Open for writing too, it has no end when the job process closes it.
        @pipe = File.open(path, "r+")
        server.start(@folder, redis.url(@port), env.merge("BENCH_GOALS" => goals.join(","), "BENCH_PIPE" => path))
      end

      # Waits for the next goal.
      # @return [Hash{Symbol => Object}] what the job process says, see apps/tally.rb
      def told(limit_s = ANSWER_LIMIT_S)
        deadline = now_s + limit_s
        until @pipe.wait_readable(PROBE_EVERY_S)
          raise "#{server.label} has ended:\n#{server.log}" if server.ended?
          raise "#{server.label} has not done its jobs within #{limit_s} s:\n#{server.log}" if now_s > deadline
        end
        JSON.parse(@pipe.gets, symbolize_names: true)
      end

      # Takes the jobs of the queue away until {#release}.
      def park = redis.call("RENAME", QUEUE, PARKED)

      # All at once, as one push would.
      # @return [Integer] nanoseconds of the clock, just before
      def release = now_ns.tap { redis.call("RENAME", PARKED, QUEUE) }

      # @return [Hash{Symbol => Object}] processor time of the server, its threads, and Redis
      def reading
        pids = server.tree.pids
        { cpu_s: CpuClock.seconds(pids), threads: CpuClock.threads(pids), redis_s: CpuClock.seconds([redis.pid]) }
      end

      def settle = sleep(SETTLE_S)

      # Ends the server in order and asks the store whether everything was done.
      # @param jobs [Integer] that should have been
      # @raise [RuntimeError] when anything was lost or failed: such a slice measures nothing
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
