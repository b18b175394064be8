# frozen_string_literal: true

require_relative "../support/report"
require_relative "cases"
require_relative "load_verdict"

module Bench
  module Web
    # The table of the web suite.
    class Summary < Report
      HEAD = ["| case | Chaton req/s | Puma req/s | p99 ms | CPU µs/request | waits/request | bars | |",
              "|---|---:|---:|---:|---:|---:|---|---|"].freeze
      # The bar of the common requests' median.
      COMMON_BAR = Bar.at_least(:rps, 1.15)
      NOTES = <<~TEXT
        Each figure is the median of alternating slices. Where a cell has two figures, the first is Chaton's and the second
        is Puma's best. Rates depend on the machine and its other load; ratios and CPU per request depend on them less.
        "Waits" are the voluntary context switches of all the server's threads. "Steady" is connections divided by mean
        latency, for responses that take a good part of a slice.
      TEXT

      # @param results [Results]
      def initialize(results) = super(results, title: "Web", cases: Suite::CASES, notes: NOTES)

      # @return [String]
      def table = [super, common_row].compact.join("\n")

      private

      def head = HEAD
      def verdict(a_case, raw) = LoadVerdict.new(a_case, raw)

      # A case without peers compares two Chatons.
      def row(verdict)
        peer = verdict.fastest_peer
        cells(verdict.a_case.title, Bench.grouped(verdict.own["rps"]),
              peer ? rate(peer.last, peer.first.delete_prefix("puma ")) : rate(*verdict.medians.to_a.last.reverse),
              pair(verdict, "p99_ms"), pair(verdict, "cpu_us"), pair(verdict, "waits"),
              verdict.bars.map { |bar, figure, _| bar.describe(figure) }.join("; ") + error_count(verdict),
              mark(verdict.met?))
      end

      def common_row
        common = verdicts.select { |verdict| verdict.a_case.group == "common" }
        return if common.empty?
        figure = Bench.median(common.map { |verdict| verdict.figure(verdict.a_case.bars.first) })
        "| median of the #{common.size} cells of common requests | | | | | | #{COMMON_BAR.describe(figure)} | " \
          "#{mark(COMMON_BAR.met_by?(figure))} |"
      end

      def rate(figures, label) = "#{Bench.grouped(figures["rps"])} (#{label})"

      def pair(verdict, metric)
        others = verdict.peers.empty? ? verdict.medians.values.drop(1) : verdict.peers.values
        theirs = others.filter_map { |figures| figures[metric] }.min
        own = verdict.own[metric]
        return "" unless own || theirs
        [own ? Bench.short(own) : "?", *(Bench.short(theirs) if theirs)].join(" / ")
      end

      def error_count(verdict)
        count = verdict.own.fetch("errors", 0).to_i
        count.zero? ? "" : "; #{count} errors per slice"
      end
    end
  end
end
