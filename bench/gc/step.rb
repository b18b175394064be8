# frozen_string_literal: true

require_relative "../support/gc_reading"
require_relative "../support/open_loop"
require_relative "../support/rss_sampler"

module Bench
  module Gc
    # One constant rate on one server for some seconds: its latencies, its collections and its memory.
    class Step
      # @param a_case [Case]
      # @param server [Server] running, with the GC meter
      # @param rate [Numeric] requests a second
      # @param seconds [Numeric]
      # @param warmup_s [Numeric]
      def initialize(a_case, server, rate:, seconds: a_case.seconds, warmup_s: a_case.warmup_s)
        @server = server
        @rate = rate
        @load = OpenLoop.new(server.url(a_case.path), rate:, seconds:, warmup_s:)
      end

      def measure
        sampler = RssSampler.new(@server.tree)
        before = GcReading.of(@server)
        cpu = @server.tree.read
        responses = sampler.during { @load.run }
        # The server responds after all offered requests, also after those whose client has given up.
        after = GcReading.of(@server)
        { rss_mb: sampler.peak, server_cpu_s: @server.tree.read.cpu_s_since(cpu).round(3),
          kept_up: OpenLoop.kept_up?(responses), **responses, **GcReading.between(before, after) }
      end
    end
  end
end
