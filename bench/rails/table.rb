# frozen_string_literal: true

require_relative "../support/numbers"

module Bench
  module Rails
    # The results of one run for a reader who has no time: four rows, without bars.
    class Table
      ROWS = {
        "requests failed in three deploys" => ->(slices) { share(slices, "failed", "requests") },
        "jobs lost by a `kill -9`" => ->(slices) { share(slices, "lost", "jobs") },
        "p99 of a page beside four jobs that compute" => ->(slices) { "#{median(slices, "p99_ms")} ms" },
        "memory of all processes" => ->(slices) { "#{median(slices, "pss_mb")} MB" }
      }.freeze

      def self.share(slices, part, whole) = [part, whole].map { |name| slices.sum { |one| one[name] } }.join(" of ")
      def self.median(slices, name) = Bench.median(slices.map { |one| one[name] }).round

      # @param raw [Hash{String => Object}] the raw results of the case
      def initialize(raw)
        @slices = raw.fetch("slices").reject { |slice| slice.key?("error") }.group_by { |slice| slice["server"] }
      end

      # @return [Array<Array<String>>] the lines' cells, the heading first
      def lines
        stack = "Rails #{versions["Rails"]} on Ruby #{versions["Ruby"]}, 2 web workers and 1 for jobs"
        [[stack, *@slices.keys.map { |name| title(name) }], *ROWS.map { |label, cell|
                                                              [label, *@slices.values.map(&cell)]
                                                            }]
      end

      # @return [String] for a README
      def markdown
        head, *body = lines.map { |cells| "| #{cells.join(" | ")} |" }
        [head, "|---|---:|---:|", *body].join("\n")
      end

      # @return [String] for a terminal, with the processes' memory below
      def to_s
        widths = lines.transpose.map { |column| column.map(&:size).max }
        head, *body = lines.map do |label, *cells|
          [label.ljust(widths.first), *cells.zip(widths.drop(1)).map { |cell, width| cell.rjust(width) }].join("  ")
        end
        [head, widths.map { |width| "─" * width }.join("──"), *body, "",
         *@slices.map { |name, slices| "#{name}: #{processes(slices.last)}" }].join("\n")
      end

      private

      # Of all that was loaded on either side.
      def versions = @slices.values.flatten.map { |slice| slice["versions"] }.reduce({}, :merge)

      # "Puma 8.0.2 and Sidekiq 8.1.7"
      def title(label)
        label.capitalize.gsub(/puma|sidekiq/i) { |word| "#{word.capitalize} #{versions[word.capitalize]}" }
      end

      def processes(slice) = slice["processes"].map { |name, mb| "#{name} #{mb.round} MB" }.join(", ")
    end
  end
end
