# frozen_string_literal: true

require_relative "../support/gc_reading"
require_relative "../support/open_loop"
require_relative "../support/rss_sampler"

module Bench
  module Gc
    # Some seconds of one constant rate on one server: how it answered, what it collected meanwhile, and its memory.
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

      # @return [Hash{Symbol => Object}]
      def measure
        sampler = RssSampler.new(@server.tree)
        before = GcReading.of(@server)
        cpu = @server.tree.read
        answers = sampler.during { @load.run }
        # Answered only when what was offered is done, also what nobody waits for any more.
        after = GcReading.of(@server)
        { rss_mb: sampler.peak, server_cpu_s: @server.tree.read.cpu_s_since(cpu).round(3),
          kept_up: OpenLoop.kept_up?(answers), **answers, **GcReading.between(before, after) }
      end
    end
  end
end
