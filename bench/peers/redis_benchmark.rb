# frozen_string_literal: true

require "open3"

module Bench
  # The C client that comes with Redis, one connection, one command at a time: what the network and the server allow.
  class RedisBenchmark
    LABEL = "redis-benchmark -c 1"

    def label = LABEL
    def chaton? = false
    def command_line = "#{LABEL} -P 1 -n JOBS LPUSH queue:default DOCUMENT"

    # @param redis [RedisServer]
    # @param words [Array<String>] the command that is sent each time
    # @return [Float] commands a second
    def rate(redis, count, *words)
      output, status = Open3.capture2e(*LABEL.split, "-P", "1", "-h", "127.0.0.1", "-p", redis.port.to_s,
                                       "-n", count.to_s, "-q", *words)
      found = output[/([\d.]+) requests per second, p50/, 1]
      raise "redis-benchmark failed: #{output[-200..] || output}" unless status.success? && found
      Float(found)
    end
  end
end
