# frozen_string_literal: true

require_relative "../support/report"

module Bench
  module Streams
    # Renders a run's folder: the rows of all cases, and the tables of topics and threads cell by cell.
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
        each = cell["by_topic"].minmax.map { |rate| short(rate) }.uniq.join(" to ")
        "#{short(cell["mps"])}/s#{", #{each} each" if cell["by_topic"].size > 1}, #{short(cell["cpu_s_per_m"])} s"
      end
    end
  end
end
