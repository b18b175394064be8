# frozen_string_literal: true

require "json"
require "open3"

module Bench
  # Requests at a constant rate, whatever the answers do: open-loop of crates/testkit, built once.
  class OpenLoop
    ROOT = File.expand_path("../..", __dir__)
    # Enough that neither server's threads are short of requests.
    CONNECTIONS_MAX = 256
    # Who has waited so long is gone.
    TIMEOUT_S = 2
    # A rate is answered in full if all but this share had their answer when the slice ended, ...
    LATE_MAX = 0.005
    # ... and p99 shows no queue.
    P99_MS_MAX = 100.0

    # @return [String] path of the program
    def self.program
      @program ||= begin
        target = ENV.fetch("CARGO_TARGET_DIR", File.join(ROOT, "target"))
        system("cargo", "build", "--locked", "--release", "--quiet", "--package", "chaton-testkit", chdir: ROOT) or
          raise "cargo could not build crates/testkit; what it says is above"
        File.join(target, "release", "open-loop")
      end
    end

    # @param figures [Hash{Symbol => Object}] of one rate
    # @return [Boolean] whether everything offered was answered, in time
    def self.kept_up?(figures)
      figures[:errors].empty? && figures[:late] <= figures[:offered] * LATE_MAX && figures[:p99_ms] <= P99_MS_MAX
    end

    # @param url [String]
    # @param rate [Numeric] requests a second
    # @param seconds [Numeric]
    # @param warmup_s [Numeric] at the same rate, before what counts
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
