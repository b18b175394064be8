# frozen_string_literal: true

require_relative "../support/disk"
require_relative "../support/numbers"
require_relative "drain"

module Bench
  module Streams
    # Measures the local log: durable writes in bulk, reads, and single durable writes. The disk's own time for a
    # durable write is measured just before and after.
    class Local
      PARTITIONS = 4
      SINGLES = 500

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
      end

      def measure(_contender)
        Stage.with(:local) do |stage|
          topic = stage.fresh_topic(PARTITIONS)
          produced = stage.ask("many", topic, @case.records, @case.bytes)
          disk_ms = Disk.sync_ms(Stage::FOLDER)
          single_ms = singles(stage)
          disk_ms = (disk_ms + Disk.sync_ms(Stage::FOLDER)).sort
          consumed = Drain.measure(ChatonStreams.new(consumer: @case.consumer), [topic], @case.records, stage:)
          { produce_mps: produced[:mps].round, produce_cpu_s_per_m: produced[:cpu_s_per_m].round(4),
            consume_mps: consumed[:mps], cpu_s_per_m: consumed[:cpu_s_per_m],
            single_p50_ms: Bench.percentile(single_ms, 0.5), single_p99_ms: Bench.percentile(single_ms, 0.99),
            disk_p50_ms: Bench.percentile(disk_ms, 0.5), disk_p99_ms: Bench.percentile(disk_ms, 0.99) }
        end
      end

      private

      def singles(stage)
        topic = stage.fresh_topic(1)
        stage.ask("single", topic, SINGLES, @case.bytes)[:times_ns].map { |ns| ns / 1e6 }.sort
      end
    end
  end
end
