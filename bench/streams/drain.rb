# frozen_string_literal: true

require_relative "../peers/chaton_streams"
require_relative "stage"

module Bench
  module Streams
    # Measures the consuming of filled topics, from the start of the first batch to the end of the last, by the clock of
    # the consuming process. Its processor time is that of all its threads in the same span.
    module Drain
      module_function

      # @param server [ChatonStreams]
      # @param topics [Array<String>] filled
      # @param records [Integer] of each
      # @param stage [Stage, nil] of the log with the topics; nil: the shared Kafka
      def measure(server, topics, records, stage: nil)
        return Stage.with(:kafka) { |fresh| measure(server, topics, records, stage: fresh) } unless stage
        stage.serve(server.reading(topics, stage.fresh_group), [topics.size * records])
        figures(stage.wait_for_goal, topics)
      end

      def figures(report, topics)
        raise "#{topics.size - report[:topics].size} topics were not consumed" if report[:topics].size < topics.size
        { mps: rate(report[:count], report[:from_ns], report[:to_ns]).round, batches: report[:batches], gc: report[:gc],
          cpu_s_per_m: (report[:cpu_s] * 1e6 / report[:count]).round(4),
          by_topic: report[:topics].values.map { |one| rate(one[:count], one[:from_ns], one[:to_ns]).round } }
      end

      def rate(count, from_ns, to_ns) = count * 1e9 / (to_ns - from_ns)
    end
  end
end
