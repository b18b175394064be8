# frozen_string_literal: true

require_relative "../support/numbers"
require_relative "stage"

module Bench
  module Streams
    # Measures the time from just before `Chaton.produce` in one process to the first line of `consume` in another, at a
    # constant rate.
    class Latency
      PARTITIONS = 4
      # Records before the measured ones, so that everything is connected and warm.
      WARM_UP_S = 2

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
      end

      # @param contender [Contender] `what` is the log
      def measure(contender)
        Stage.with(contender.what) do |stage|
          topic = stage.fresh_topic(PARTITIONS)
          warm = @case.rate * WARM_UP_S
          server = ChatonStreams.new(consumer: @case.consumer).reading([topic], stage.fresh_group)
          stage.serve(server, [1, warm - 1, @case.records])
          # The first goals ensure that the consumer has joined before the measured records are sent.
          stage.ask("pulses", topic, 1, @case.rate)
          stage.wait_for_goal
          stage.ask("pulses", topic, warm - 1, @case.rate)
          stage.wait_for_goal
          stage.ask("pulses", topic, @case.records, @case.rate)
          figures(stage.wait_for_goal[:late_ns].map { |ns| ns / 1e6 }.sort)
        end
      end

      private

      def figures(late_ms)
        { latency_p50_ms: Bench.percentile(late_ms, 0.5), latency_p99_ms: Bench.percentile(late_ms, 0.99),
          latency_max_ms: Bench.percentile(late_ms, 1.0), count: late_ms.size }
      end
    end
  end
end
