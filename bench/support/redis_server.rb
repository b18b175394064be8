# frozen_string_literal: true

require "fileutils"
require "redis"
require "socket"
require "tmpdir"
require_relative "proc_tree"

module Bench
  # A redis-server on the loopback that keeps everything in memory, without snapshots and without a log.
  class RedisServer
    BOOT_LIMIT_S = 10
    # There is no event to wait for while a port refuses connections.
    PROBE_EVERY_S = 0.05

    attr_reader :pid, :port

    # @return [self] once it responds
    def start
      @folder = Dir.mktmpdir("chaton-bench-redis")
      @port = TCPServer.open("127.0.0.1", 0) { |socket| socket.addr[1] }
      @pid = Process.spawn("redis-server", "--port", @port.to_s, "--bind", "127.0.0.1", "--save", "",
                           "--appendonly", "no", "--dir", @folder, "--daemonize", "no",
                           out: File::NULL, err: File::NULL, pgroup: true)
      wait_until_ready
      self
    end

    def stop
      return unless @pid
      @redis.close
      Process.kill(:TERM, @pid)
      Process.wait(@pid)
      FileUtils.rm_rf(@folder)
      @pid = nil
    end

    def url(port = @port) = "redis://127.0.0.1:#{port}/0"
    def call(*words) = @redis.call(*words)

    # @return [Integer] commands that were executed since the start
    def commands = Integer(call("INFO", "stats")[/^total_commands_processed:(\d+)/, 1])

    private

    def wait_until_ready
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + BOOT_LIMIT_S
      @redis = Redis.new(url:, timeout: 30, reconnect_attempts: 0)
      call("PING")
    rescue Redis::CannotConnectError
      raise "redis-server did not start" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep PROBE_EVERY_S
      retry
    end
  end
end
