# frozen_string_literal: true

require_relative "stage"

module Bench
  module Streams
    # Measures producing from Ruby, until every receipt confirms that its record is durable.
    class Produce
      PARTITIONS = 5

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
      end

      # @param contender [Contender] `what` is the client's command
      def measure(contender)
        Stage.with(@case.log) do |stage|
          topic = stage.fresh_topic(PARTITIONS)
          stage.ask(contender.what, topic, @case.records / 20, @case.bytes)
          result = stage.ask(contender.what, topic, @case.records, @case.bytes)
          stage.ask("drop", topic)
          { mps: result[:mps].round, cpu_s_per_m: result[:cpu_s_per_m].round(4) }
        end
      end
    end
  end
end
