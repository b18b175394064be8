# frozen_string_literal: true

require_relative "stage"

module Bench
  module Streams
    # Records at a constant rate from one process to another: from just before `Chaton.produce` is called to the first
    # line of `consume`.
    class Latency
      PARTITIONS = 4
      # Sent before those that count, so that all is connected and warm.
      WARM_UP_S = 2

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
      end

      # @param contender [Contender] `what` is the log
      # @return [Hash{Symbol => Object}]
      def measure(contender)
        Stage.with(contender.what) do |stage|
          topic = stage.fresh_topic(PARTITIONS)
          warm = @case.rate * WARM_UP_S
          server = ChatonStreams.new(consumer: @case.consumer).reading([topic], stage.fresh_group)
          stage.serve(server, [1, warm - 1, @case.records])
          # Whoever reads is there when those that count are sent.
          stage.ask("pulses", topic, 1, @case.rate)
          stage.told
          stage.ask("pulses", topic, warm - 1, @case.rate)
          stage.told
          stage.ask("pulses", topic, @case.records, @case.rate)
          figures(stage.told[:late_ns].map { |ns| ns / 1e6 }.sort)
        end
      end

      private

      def figures(late_ms)
        { latency_p50_ms: share(late_ms, 0.5), latency_p99_ms: share(late_ms, 0.99),
          latency_max_ms: share(late_ms, 1.0), count: late_ms.size }
      end

      # Nearest rank.
      def share(sorted, part) = sorted[[(sorted.size * part).ceil - 1, 0].max].round(3)
    end
  end
end
