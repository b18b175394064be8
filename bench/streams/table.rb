# frozen_string_literal: true

require_relative "../support/numbers"
require_relative "drain"

module Bench
  module Streams
    # Measures the table of topics and threads; each cell is a drain by a process of its own.
    class Table
      PARTITIONS = 5

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
        @topics = Stage.filled(a_case.topics.max, partitions: PARTITIONS, records: a_case.records, bytes: a_case.bytes)
      end

      # @return [Hash{Symbol => Object}] the extremes of all cells, and each cell
      def measure(_server)
        cells = @case.topics.product(@case.threads).map { |topics, threads| cell(topics, threads) }
        rates = cells.map { |cell| cell[:mps] }
        { lowest_mps: rates.min, highest_mps: rates.max, cpu_s_per_m: cells.map { |cell| cell[:cpu_s_per_m] }.max,
          by_topics: lowest_ratio(cells, :on, :threads), by_threads: lowest_ratio(cells, :threads, :on), cells: }
      end

      private

      def cell(topics, threads)
        server = ChatonStreams.new(threads:, consumer: @case.consumer)
        { on: topics, threads:, **Drain.measure(server, @topics.first(topics), @case.records) }
      end

      # The lowest ratio of several to one; each rate is the median over the other dimension.
      def lowest_ratio(cells, dimension, other)
        rates = cells.group_by { |cell| cell[dimension] }.transform_values do |found|
          Bench.median(found.sort_by { |cell| cell[other] }.map { |cell| cell[:mps] })
        end
        (rates.values.drop(1).min.to_f / rates.values.first).round(3)
      end
    end
  end
end
