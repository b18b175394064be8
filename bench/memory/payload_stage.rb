# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "../support/cpu_clock"
require_relative "../support/rss_sampler"
require_relative "payload_queue"

module Bench
  module Memory
    # The parts of one slice: a job server, an empty Redis, and the number of jobs that have ended.
    class PayloadStage
      BOOT_LIMIT_S = 60
      PROBE_EVERY_S = 0.05
      # Jobs of the first boot, which is not measured: Chaton's reading of the heap there sets up the measured boot.
      FIRST_JOBS = 50
      # Removes settings of Ruby's collector, which users do not have either.
      SETTINGS = ENV.keys.grep(/\ARUBY_GC_/).to_h { |name| [name, nil] }.freeze

      attr_reader :server, :queue

      # @param server [JobServer]
      # @param redis [RedisServer]
      # @yield [PayloadStage] the server has done some jobs and is idle
      def self.open(server, redis)
        stage = new(server, redis)
        if server.chaton?
          stage.boot
          server.stop
        end
        stage.boot
        yield stage
      ensure
        stage&.close
      end

      def initialize(server, redis)
        @server = server
        @redis = redis
        @folder = Dir.mktmpdir("chaton-bench-memory")
        @tally = File.join(@folder, "tally")
        @redis.call("FLUSHALL")
        @queue = PayloadQueue.new(redis)
      end

      def boot
        File.binwrite(@tally, [0].pack("Q"))
        server.start(@folder, @redis.url, SETTINGS.merge("BENCH_TALLY" => @tally))
        queue.push(FIRST_JOBS)
        wait_for(BOOT_LIMIT_S) { ended == FIRST_JOBS }
      end

      # @return [Integer] jobs that ended since the boot
      def ended = File.binread(@tally).unpack1("Q")

      # @return [Float] processor seconds of the server
      def cpu_s = CpuClock.seconds(server.tree.pids)

      # @return [RssSampler] of the server
      def sampler = RssSampler.new(server.tree)

      # @param limit_s [Numeric]
      # @raise [RuntimeError] when the server has ended or the limit has passed
      def wait_for(limit_s)
        deadline = now_s + limit_s
        until yield
          raise "#{server.label} has ended:\n#{server.log}" if server.ended?
          raise "#{server.label} is not done after #{limit_s} s (#{ended} jobs ended)" if now_s > deadline
          sleep PROBE_EVERY_S
        end
      end

      def close
        server.stop
        FileUtils.rm_rf(@folder)
      end

      def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
