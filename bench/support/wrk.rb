# frozen_string_literal: true

require "json"

module Bench
  # One run of wrk.
  class Wrk
    SCRIPT = File.expand_path("load.lua", __dir__)
    # The figures and the command of one run.
    Result = Struct.new(:command, :output, :figures, keyword_init: true) do
      def requests = figures.fetch("requests")
      def rps = (requests * 1e6 / figures.fetch("duration_us")).round(1)
      # The rate by Little's law: connections divided by mean latency. Counting would miss the requests in flight at the
      # end of the slice, which matters when a response takes a good part of the slice.
      def steady_rps = (figures.fetch("connections") * 1e6 / [figures.fetch("mean_us"), 1].max).round(1)
      def p50_ms = milliseconds("p50_us")
      def p99_ms = milliseconds("p99_us")
      def max_ms = milliseconds("max_us")
      def errors = figures.sum { |name, count| name.end_with?("errors") || name == "timeouts" ? count : 0 }

      private

      # It is 0 when nothing was answered.
      def milliseconds(name) = figures.fetch(name).zero? ? nil : figures.fetch(name) / 1000.0
    end

    # wrk corrects latencies for delayed requests, and takes a batch of pipelined ones for one that was delayed.
    WRONG = { "pipelined" => { "p50_us" => 0, "p90_us" => 0, "p99_us" => 0 } }.freeze

    # @param url [String]
    # @param connections [Integer]
    # @param seconds [Integer] wrk knows whole seconds only
    # @param mode [String] see load.lua
    # @param headers [Hash{String => String}]
    def initialize(url, connections:, seconds:, mode: "get", headers: {})
      # One thread saturates either server with few connections; many connections are shared by two threads.
      threads = connections >= 100 ? 2 : 1
      @connections = connections
      @mode = mode
      @command = ["wrk", "-t#{threads}", "-c#{connections}", "-d#{seconds}s", "--latency", "--timeout", "10s",
                  *headers.flat_map { |header| ["-H", header.join(": ")] }, "-s", SCRIPT, url, "--", mode]
    end

    # @return [Result]
    # @raise [RuntimeError] when wrk itself failed
    def run
      output = IO.popen(@command, err: [:child, :out], &:read)
      line = output[/^RESULT (.+)$/, 1]
      raise "#{@command.join(" ")} failed:\n#{output}" unless line
      figures = { "connections" => @connections, **JSON.parse(line), **WRONG.fetch(@mode, {}) }
      Result.new(command: @command.join(" "), output: output, figures: figures)
    end

    # Runs in the background.
    # @return [Thread] its value is the result
    def start = Thread.new { run }
  end
end
