# frozen_string_literal: true

require_relative "../support/h2load"
require_relative "../support/wrk"

module Bench
  module Web
    # Puts load on one server for some seconds, and measures what the server spent on it.
    class Slice
      # @param a_case [Case]
      # @param server [Server] running
      # @param seconds [Integer]
      # @param warmup_s [Integer]
      def initialize(a_case, server, seconds: a_case.seconds, warmup_s: a_case.warmup_s)
        @case = a_case
        @server = server
        @seconds = seconds
        @warmup_s = warmup_s
      end

      # @return [Hash{Symbol => Object}] figures, and wrk's output under :wrk
      def measure
        warm_up
        neighbour = @case.beside && second_load(*@case.beside).start
        before = @server.tree.read
        result = load(@case.path, @case.connections, mode: @case.mode).run
        after = @server.tree.read
        beside = neighbour&.value
        figures(result, before, after).merge(beside ? { beside_rps: beside.rps } : {})
      end

      private

      def warm_up
        load(@case.path, @case.connections, mode: @case.mode, seconds: @warmup_s).run unless @warmup_s.zero?
      end

      def second_load(path, connections, mode = "get") = load(path, connections, mode:, seconds: @seconds + 1)

      def load(path, connections, mode: "get", seconds: @seconds)
        return H2load.new(@server.url(path), connections:, seconds:) if @server.http2?
        Wrk.new(@server.url(path), connections:, seconds:, mode:, headers: @server.request_headers)
      end

      def figures(result, before, after)
        requests = [result.requests, 1].max.to_f
        { server: @server.label,
          rps: result.rps, steady_rps: result.steady_rps,
          p50_ms: result.p50_ms, p99_ms: result.p99_ms, max_ms: result.max_ms, errors: result.errors,
          cpu_us: (after.cpu_s_since(before) * 1e6 / requests).round(2),
          waits: (after.waits_since(before) / requests).round(4),
          **@server.tree.memory_mb, wrk: { command: result.command, output: result.output, figures: result.figures } }
      end
    end
  end
end
