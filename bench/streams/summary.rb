# frozen_string_literal: true

require_relative "../support/report"

module Bench
  module Streams
    # The table of the streams suite, followed by the tables of topics and threads.
    class Summary < Report
      # @return [String]
      def table = [super, *tables].join("\n\n")

      private

      def tables
        verdicts.select { |verdict| verdict.a_case.kind == :table }.filter_map do |verdict|
          cells = verdict.raw.fetch("slices").first["cells"]
          next unless cells
          [verdict.a_case.title, grid(cells)].join(":\n\n")
        end
      end

      def grid(cells)
        threads = cells.map { |cell| cell["threads"] }.uniq
        rows = cells.group_by { |cell| cell["on"] }.map do |topics, found|
          "| #{topics} | #{found.map { |cell| shown_cell(cell) }.join(" | ")} |"
        end
        ["| topics | #{threads.map { |count| "#{count} thread#{"s" if count > 1}" }.join(" | ")} |",
         "|---|#{"---:|" * threads.size}", *rows].join("\n")
      end

      # "1,204,000/s, 240,000 to 260,000 each, 0.31 s"
      def shown_cell(cell)
        mps, *each = [cell["mps"], *cell["by_topic"].minmax.uniq].map { |rate| Bench.short(rate, thousands: true) }
        "#{mps}/s#{", #{each.join(" to ")} each" if cell["by_topic"].size > 1}, #{Bench.short(cell["cpu_s_per_m"])} s"
      end
    end
  end
end
