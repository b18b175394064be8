# frozen_string_literal: true

require_relative "wrk"

module Bench
  # One run of h2load: HTTP/2, with several requests under way on each connection.
  class H2load
    STREAMS = 10
    UNITS = { "us" => 1, "ms" => 1000, "s" => 1_000_000 }.freeze

    # @param url [String]
    # @param connections [Integer] requests under way; each connection has {STREAMS} of them
    # @param seconds [Integer]
    def initialize(url, connections:, seconds:)
      @connections = connections
      @seconds = seconds
      @command = ["h2load", "-t1", "-c#{connections / STREAMS}", "-m#{STREAMS}", "-D#{seconds}", url]
    end

    # @return [Wrk::Result] without percentiles, which h2load does not print
    # @raise [RuntimeError] when h2load itself failed
    def run
      output = IO.popen(@command, err: [:child, :out], &:read)
      done, failed = output.match(/ (\d+) succeeded, (\d+) failed/)&.captures&.map(&:to_i)
      raise "#{@command.join(" ")} failed:\n#{output}" unless done
      Wrk::Result.new(command: @command.join(" "), output: output, figures: figures(output, done, failed))
    end

    private

    # Of the line of the requests' times: the least, the greatest, the mean.
    def figures(output, done, failed)
      times = output[/^time for request:(.+)$/, 1].to_s.scan(/([\d.]+)(us|ms|s)\b/)
      _, max, mean = times.map { |number, unit| (number.to_f * UNITS.fetch(unit)).round }
      { "connections" => @connections, "requests" => done, "duration_us" => @seconds * 1_000_000,
        "mean_us" => mean.to_i, "max_us" => max.to_i, "p50_us" => 0, "p90_us" => 0, "p99_us" => 0,
        "status_errors" => failed }
    end
  end
end
