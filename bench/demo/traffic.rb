# frozen_string_literal: true

require_relative "../support/machine"
require_relative "../support/wrk"
require_relative "clients"

module Bench
  # Sends requests to one server for some seconds, and measures what they cost it. It uses wrk where that is installed,
  # else a few clients in Ruby, which are slower than the server.
  class Traffic
    # @param server [Server] running
    # @param path [String]
    # @param connections [Integer]
    # @param seconds [Integer]
    def initialize(server, path, connections:, seconds:)
      @server = server
      @load = (Machine.installed?("wrk") ? Wrk : Clients).new(server.url(path), connections:, seconds:)
    end

    # @return [Hash{Symbol => Numeric}]
    def run
      before = @server.tree.read
      result = @load.run
      after = @server.tree.read
      { rps: result.rps, p50_ms: result.p50_ms, p99_ms: result.p99_ms, errors: result.errors,
        cpu_us: after.cpu_s_since(before) * 1e6 / [result.requests, 1].max, **@server.tree.memory_mb }
    end
  end
end
