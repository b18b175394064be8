# frozen_string_literal: true

require "json"
require "open3"

module Bench
  # Sends requests at a constant rate, independent of the responses: open-loop of crates/testkit, built once.
  class OpenLoop
    ROOT = File.expand_path("../..", __dir__)
    # Enough connections to keep the threads of either server busy.
    CONNECTIONS_MAX = 256
    # A client gives up after this time.
    TIMEOUT_S = 2
    # A rate is answered in full when at most this share of responses was missing at the end of the slice, ...
    LATE_MAX = 0.005
    # ... and p99 stays below this: a server whose collector stops it for a tenth of a second, as Puma's does with
    # 450,000 objects, is slow, but does not fall behind.
    P99_MS_MAX = 500.0

    # @return [String] path of the program
    def self.program
      @program ||= begin
        target = ENV.fetch("CARGO_TARGET_DIR", File.join(ROOT, "target"))
        system("cargo", "build", "--locked", "--release", "--quiet", "--package", "chaton-testkit", chdir: ROOT) or
          raise "cargo could not build crates/testkit; its output is above"
        File.join(target, "release", "open-loop")
      end
    end

    # @param figures [Hash{Symbol => Object}] of one rate
    # @return [Boolean] whether all requests were answered in time
    def self.kept_up?(figures)
      figures[:errors].empty? && figures[:late] <= figures[:offered] * LATE_MAX && figures[:p99_ms] <= P99_MS_MAX
    end

    # @param url [String]
    # @param rate [Numeric] requests a second
    # @param seconds [Numeric]
    # @param warmup_s [Numeric] seconds at the same rate that are not counted
    def initialize(url, rate:, seconds:, warmup_s: 0)
      @command = [self.class.program, "--url", url, "--rate", rate.to_s, "--seconds", seconds.to_s,
                  "--warmup", warmup_s.to_s, "--timeout", TIMEOUT_S.to_s,
                  "--connections-max", CONNECTIONS_MAX.to_s, "--json"]
    end

    # @return [Hash{Symbol => Object}] see Report of crates/testkit
    # @raise [RuntimeError] when the generator itself failed
    def run
      output, status = Open3.capture2e(*@command)
      raise "#{@command.join(" ")} failed:\n#{output}" unless status.success?
      JSON.parse(output, symbolize_names: true)
    end
  end
end
