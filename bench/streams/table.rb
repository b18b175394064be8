# frozen_string_literal: true

require_relative "../support/median"
require_relative "drain"

module Bench
  module Streams
    # The table of topics and threads: each cell a drain by a process of its own.
    class Table
      PARTITIONS = 5

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
        @topics = Stage.filled(a_case.topics.max, partitions: PARTITIONS, records: a_case.records, bytes: a_case.bytes)
      end

      # @return [Hash{Symbol => Object}] what the cells have in common, and each
      def measure(_server)
        cells = @case.topics.product(@case.threads).map { |topics, threads| cell(topics, threads) }
        rates = cells.map { |cell| cell[:mps] }
        { lowest_mps: rates.min, highest_mps: rates.max, cpu_s_per_m: cells.map { |cell| cell[:cpu_s_per_m] }.max,
          by_topics: fall(cells, :on, :threads), by_threads: fall(cells, :threads, :on), cells: }
      end

      private

      def cell(topics, threads)
        server = ChatonStreams.new(threads:, consumer: @case.consumer)
        { on: topics, threads:, **Drain.measure(server, @topics.first(topics), @case.records) }
      end

      # The lowest of what more of them bring against one; each the median over the other dimension.
      def fall(cells, dimension, other)
        rates = cells.group_by { |cell| cell[dimension] }.transform_values do |found|
          Bench.median(found.sort_by { |cell| cell[other] }.map { |cell| cell[:mps] })
        end
        (rates.values.drop(1).min.to_f / rates.values.first).round(3)
      end
    end
  end
end
