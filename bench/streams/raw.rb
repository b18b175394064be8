# frozen_string_literal: true

require "json"
require "open3"
require_relative "drain"
require_relative "table"

module Bench
  module Streams
    # Compares with librdkafka's batch calls from Rust (crates/streams/examples/raw_drain.rs, built once).
    class Raw
      ROOT = File.expand_path("../..", __dir__)
      BATCH = 1000

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
        @topic = Stage.filled(1, partitions: Table::PARTITIONS, records: a_case.records, bytes: a_case.bytes)
      end

      # @param server [Contender]
      def measure(server)
        return librdkafka unless server.label.start_with?("chaton")
        Drain.measure(ChatonStreams.new(consumer: server.what || @case.consumer), @topic, @case.records)
      end

      private

      def librdkafka
        group = "bench-raw-#{SecureRandom.hex(4)}"
        words = [program, Kafka.shared.address, @topic.first, group, @case.records.to_s, BATCH.to_s]
        output, status = Open3.capture2e(*words)
        raise "#{words.join(" ")} failed: #{output}" unless status.success?
        result = JSON.parse(output.lines.last, symbolize_names: true)
        { mps: (result[:count] / result[:seconds]).round,
          cpu_s_per_m: (result[:cpu_s] * 1e6 / result[:count]).round(4) }
      end

      def program
        @program ||= begin
          target = ENV.fetch("CARGO_TARGET_DIR", File.join(ROOT, "target"))
          system("cargo", "build", "--locked", "--release", "--quiet", "--package", "chaton-streams", "--example",
                 "raw_drain", chdir: ROOT) or raise "cargo could not build the example raw_drain; its output is above"
          File.join(target, "release", "examples", "raw_drain")
        end
      end
    end
  end
end
