# frozen_string_literal: true

require_relative "../support/chart_row"
require_relative "case_run"
require_relative "cases"
require_relative "summary"

module Bench
  # Chaton on Kafka and on its local log, beside librdkafka itself.
  module Streams
    # `bin/bench streams`; Bench::Run calls its methods.
    module Suite
      # Limits of --quick: a run for orientation, too short to be cited.
      QUICK = { rounds: 1, records: 200_000, seconds: 6 }.freeze
      # The first and the last of a list.
      CORNERS = ->(list) { [list.first, list.last] }
      NOTES = <<~TEXT
        Kafka is Apache's own broker (see test/support/kafka), one for the whole run, on the same machine and cores, with
        topics of 5 partitions. Each figure is the median of slices in turn, each with a process of its own (`-w 0`) and a
        consumer group of its own; a ratio is the median of the ratios of each round. A drain is measured inside the process
        that consumes, from the start of its first batch to the end of its last one; CPU is that of all its threads in the
        same span, per 1,000,000 messages, without the broker's. In the table of topics and threads each cell is measured
        once, and "each" is the rate of each topic while it was read. The row shows the lowest rate, the highest CPU, and
        the lowest ratio of several topics (threads) to one, as medians over the threads (topics). Every produced record was
        confirmed as durable. Wake-ups are the voluntary context switches that the kernel counted for the engine's thread
        (and for librdkafka's), per loop of 10 batches of one record. The engine's thread also spends CPU on handing out
        batches, and only with 100 ms is that negligible. A slow consumer's memory is compared with that of the same process
        with little work; the bound is twice the read-ahead that the settings allow (4 partitions of 8 MB). Debian has no
        Kafka driver for Ruby (neither rdkafka nor ruby-kafka), so none was measured; MEASURED.md's 4.1 to 4.6 s of CPU per
        1,000,000 are those of rdkafka-ruby 0.13 on the same kind of machine.
      TEXT

      CHARTS = [
        ChartRow.new(case_name: "raw", title: "1,000,000 messages of 100 bytes read from Kafka, no value touched",
                     metric: :mps, unit: "/s"),
        ChartRow.new(case_name: "raw", title: "CPU for them", metric: :cpu_s_per_m, unit: " s", better: :lower)
      ].freeze

      module_function

      def name = "streams"
      def programs = %w[java]
      def charts = CHARTS
      def cases = Cases.all
      def summary(results) = Summary.new(results, title: "Streams", cases:, notes: NOTES)

      # @return [Hash{Symbol => Object}] the raw results
      def measure(a_case, quick:, progress:)
        a_case = shortened(a_case) if quick
        CaseRun.new(a_case, ->(*slice) { progress.call(line(*slice)) }).run
      end

      def shortened(a_case)
        a_case.dup.tap do |quick|
          QUICK.each { |name, value| quick[name] = [quick[name], value].min if quick[name] }
          quick.records = [quick.records, quick.rate * QUICK[:seconds]].min if quick.rate
          quick.topics, quick.threads = [quick.topics, quick.threads].map(&CORNERS) if quick.kind == :table
        end
      end

      def line(a_case, figures, _round)
        shown = figures.reject { |name, value| %i[server round].include?(name) || value.is_a?(Array) }
        format("%d/%d  %-20s %s", figures[:round] + 1, a_case.rounds, figures[:server],
               shown.map { |metric, value| "#{metric} #{value}" }.join("  "))
      end
    end
  end
end
