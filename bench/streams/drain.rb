# frozen_string_literal: true

require_relative "../peers/chaton_streams"
require_relative "stage"

module Bench
  module Streams
    # Consuming what is there: from the start of the first batch to the end of the last one, by the clock of the process
    # that consumes. Its processor time is that of all its threads in the same span.
    module Drain
      module_function

      # @param server [ChatonStreams]
      # @param topics [Array<String>] filled
      # @param records [Integer] of each
      # @param log [Stage, nil] where the topics are; nil: the shared Kafka
      # @return [Hash{Symbol => Object}]
      def measure(server, topics, records, stage: nil)
        return Stage.with(:kafka) { |fresh| measure(server, topics, records, stage: fresh) } unless stage
        stage.serve(server.reading(topics, stage.fresh_group), [topics.size * records])
        figures(stage.told, topics)
      end

      def figures(told, topics)
        raise "#{topics.size - told[:topics].size} topics were not consumed" if told[:topics].size < topics.size
        { mps: rate(told[:count], told[:from_ns], told[:to_ns]).round, batches: told[:batches], gc: told[:gc],
          cpu_s_per_m: (told[:cpu_s] * 1e6 / told[:count]).round(4),
          by_topic: told[:topics].values.map { |one| rate(one[:count], one[:from_ns], one[:to_ns]).round } }
      end

      def rate(count, from_ns, to_ns) = count * 1e9 / (to_ns - from_ns)
    end
  end
end
