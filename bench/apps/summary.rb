# frozen_string_literal: true

require_relative "../support/report"
require_relative "../web/load_verdict"

module Bench
  module Apps
    # The table of real applications.
    class Summary < Report
      MEDIAN_BAR = Bar.at_least(:rps, 1.15)
      NOTES = <<~TEXT
        Redmine is Debian's package, on PostgreSQL, with 240 issues; Campfire is from its source, on SQLite and Redis, with 520
        messages in 13 rooms. Each is in its own bundle, in production; each server has a copy of the same data. Chaton has its
        defaults; of six Pumas (3, 5 or 16 threads, pinned to a core or not; three with two workers), the two that are fastest in
        a short slice are measured beside it, in turns. The first row compares status, headers and bodies of every response with
        Puma's, but for tokens, times, framing, and files of which Chaton sends the piece that was asked for, and Puma all; the
        last of its servers is Puma again. Deploys are `chaton restart --wait` and Puma's USR1, without `preload_app!`; one
        Chaton requests its pages before it forks (`warm_up`). Memory is that of all processes with shared pages counted once
        (PSS); in the row of the deploys it is read after the same number of requests.
      TEXT

      # @param results [Results]
      def initialize(results) = super(results, title: "Real applications", cases: Suite.cases, notes: NOTES)

      # @return [String]
      def table = [super, *median_row].join("\n")

      private

      def verdict(a_case, raw) = (a_case.scouts ? Web::LoadVerdict : Verdict).new(a_case, raw)

      def median_row
        loads = verdicts.select { |verdict| verdict.a_case.group }
        return [] if loads.empty?
        figure = Bench.median(loads.map { |verdict| verdict.figure(verdict.a_case.bars.first) })
        [cells("median of the #{loads.size} cells under load", "", "", MEDIAN_BAR.describe(figure),
               mark(MEDIAN_BAR.met_by?(figure)))]
      end
    end
  end
end
