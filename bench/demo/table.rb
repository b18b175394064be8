# frozen_string_literal: true

module Bench
  # The demo's table of loads, for a terminal.
  class Table
    COLUMNS = {
      "load" => ->(row) { row[:load] }, "server" => ->(row) { row[:server] },
      "requests/s" => ->(row) { row[:rps].round.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",") },
      "p50 ms" => ->(row) { format("%.2f", row[:p50_ms]) }, "p99 ms" => ->(row) { format("%.2f", row[:p99_ms]) },
      "CPU µs/request" => ->(row) { format("%.1f", row[:cpu_us]) },
      "RSS MB" => ->(row) { format("%.0f", row[:rss_mb]) }, "PSS MB" => ->(row) { format("%.0f", row[:pss_mb]) },
      "errors" => ->(row) { row[:errors].to_s }
    }.freeze
    TEXT_COLUMNS = 2

    # @param rows [Array<Hash>] rows of one load follow each other
    def initialize(rows)
      @rows = rows
    end

    def to_s
      cells = [columns.keys, *@rows.map { |row| columns.values.map { |column| column.call(row) } }]
      widths = cells.transpose.map { |column| column.map(&:size).max }
      lines = cells.map { |line| line.zip(widths, 0..).map { |cell| align(*cell) }.join("  ") }
      [lines.first, widths.map { |width| "─" * width }.join("──"), *grouped(lines.drop(1))].join("\n")
    end

    private

    def columns = COLUMNS
    def text_columns = TEXT_COLUMNS

    def align(cell, width, column) = column < text_columns ? cell.ljust(width) : cell.rjust(width)

    # An empty line between one load and the next.
    def grouped(lines)
      groups = @rows.zip(lines).slice_when { |(one, _), (other, _)| one[:load] != other[:load] }
      groups.flat_map { |group| [*group.map(&:last), ""] }[0...-1]
    end
  end
end
