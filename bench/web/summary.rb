# frozen_string_literal: true

require_relative "cases"
require_relative "idle"
require_relative "verdict"
require_relative "../support/results"

module Bench
  module Web
    # Renders raw results: one table.
    class Summary
      HEAD = ["| case | Chaton req/s | Puma req/s | p99 ms | CPU µs/request | waits/request | bars | |",
              "|---|---:|---:|---:|---:|---:|---|---|"].freeze
      # The median cell of the common requests has to be better by this much.
      COMMON_BAR = Bar.at_least(:rps, 1.15)
      NOTES = <<~TEXT
        Each figure is the median of alternating slices; of two figures in a cell the first is Chaton's, the second
        Puma's best. Rates depend on the machine and on what else it does; ratios and CPU per request less so. "Waits"
        are voluntary context switches of all the server's threads; "steady" is connections / mean latency, for answers
        that take a good part of a slice.
      TEXT

      # @param results [Results]
      def initialize(results)
        @results = results
      end

      # @return [Array<Verdict>] of the cases that were run
      def verdicts
        @verdicts ||= [*Cases.all, Idle::CASE].filter_map do |a_case|
          @results.raw(a_case.name)&.then { |raw| Verdict.new(a_case, raw) }
        end
      end

      # @return [String] the table
      def table = [*HEAD, *verdicts.map { |verdict| row(verdict) }, common_row].compact.join("\n")

      # @return [String] what follows the table
      def remarks = NOTES

      # @return [String] summary.md of a single run
      def to_s
        run = @results.only.facts
        facts = run.fetch("machine").map { |name, value| "- #{name}: #{value}" }
        <<~TEXT
          # Web, #{run.fetch("date")}

          `#{run.fetch("command")}`#{" (quick: short slices, for orientation only)" if run["quick"]}

          #{facts.join("\n")}

          #{NOTES}
          #{table}

          #{verdicts.count(&:met?)} of #{verdicts.size} rows reached. Raw results: raw/*.json.
        TEXT
      end

      private

      def row(verdict)
        peer = verdict.fastest_peer
        cells = [verdict.a_case.title, whole(verdict.ours["rps"]),
                 peer ? "#{whole(peer.last["rps"])} (#{peer.first.delete_prefix("puma ")})" : other_chaton(verdict),
                 pair(verdict, "p99_ms"), pair(verdict, "cpu_us"), pair(verdict, "waits"),
                 verdict.bars.map { |bar, figure, _| bar.describe(figure) }.join("; ") + errors(verdict),
                 verdict.met? ? "reached" : "**falls short**"]
        "| #{cells.join(" | ")} |"
      end

      def common_row
        cells = verdicts.select { |verdict| verdict.a_case.group == "common" }
        return if cells.empty?
        figure = Bench.median(cells.map { |verdict| verdict.figure(verdict.a_case.bars.first) })
        "| median of the #{cells.size} cells of common requests | | | | | | #{COMMON_BAR.describe(figure)} | " \
          "#{COMMON_BAR.met_by?(figure) ? "reached" : "**falls short**"} |"
      end

      # Where two Chatons are compared.
      def other_chaton(verdict)
        label, figures = verdict.medians.to_a.last
        "#{whole(figures["rps"])} (#{label})"
      end

      def pair(verdict, metric)
        others = verdict.peers.empty? ? verdict.medians.values.drop(1) : verdict.peers.values
        theirs = others.filter_map { |figures| figures[metric] }.min
        [verdict.ours[metric], theirs].compact.map { |value| short(value) }.join(" / ")
      end

      def errors(verdict)
        count = verdict.ours.fetch("errors", 0).to_i
        count.zero? ? "" : "; #{count} errors per slice"
      end

      def whole(value) = value.round.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",")
      def short(value) = value >= 100 ? value.round.to_s : format("%.3g", value)
    end
  end
end
