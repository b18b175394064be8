# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "../support/cpu_clock"
require_relative "../support/rss_sampler"
require_relative "payload_queue"

module Bench
  module Memory
    # A job server with a Redis of its own slice, and what it has done so far.
    class PayloadStage
      BOOT_LIMIT_S = 60
      PROBE_EVERY_S = 0.05
      # Jobs of the boot that is not measured: what it finds out about the heap sets up the next one.
      FIRST_JOBS = 50
      # Nothing that users do not have either: no settings of Ruby's collector.
      SETTINGS = ENV.keys.grep(/\ARUBY_GC_/).to_h { |name| [name, nil] }.freeze

      attr_reader :server, :queue

      # @param server [JobServer]
      # @param redis [RedisServer]
      # @yield [PayloadStage] the server is up, has done some jobs and has none
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

      # @return [void]
      def boot
        File.binwrite(@tally, [0].pack("Q"))
        server.start(@folder, @redis.url, SETTINGS.merge("BENCH_TALLY" => @tally))
        queue.push(FIRST_JOBS)
        wait_for(BOOT_LIMIT_S) { ended == FIRST_JOBS }
      end

      # @return [Integer] jobs that ended since the boot
      def ended = File.binread(@tally).unpack1("Q")

      # @return [Float] seconds of the processor that the server has spent
      def cpu_s = CpuClock.seconds(server.tree.pids)

      # @return [RssSampler] of the server
      def sampler = RssSampler.new(server.tree)

      # @param limit_s [Numeric]
      # @raise [RuntimeError] when the server ended, or it takes too long
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
