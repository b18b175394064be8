# frozen_string_literal: true

require_relative "bar"
require_relative "results"
require_relative "verdict"

module Bench
  # Renders raw results: one row for each case, with the figures that the case shows.
  class Report
    HEAD = ["| case | Chaton | beside | bars | |", "|---|---|---|---|---|"].freeze

    # @param results [Results]
    # @param title [String]
    # @param cases [Array<#name, #title, #servers, #shows, #bars>]
    # @param notes [String] on how it was measured
    # @param appendix [#call, nil] given the verdicts, what follows the table in summary.md
    def initialize(results, title:, cases:, notes:, appendix: nil)
      @results = results
      @title = title
      @cases = cases
      @notes = notes
      @appendix = appendix
    end

    # @return [Array<Verdict>] of the cases that were run
    def verdicts
      @verdicts ||= @cases.filter_map do |a_case|
        @results.raw(a_case.name)&.then { |raw| Verdict.new(a_case, raw) }
      end
    end

    # @return [String]
    def table = [*HEAD, *verdicts.map { |verdict| row(verdict) }].join("\n")

    # @return [String] what follows the table: the notes, and what the suite adds
    def remarks = [@notes, @appendix&.call(verdicts)].compact.join("\n")

    # @return [String] summary.md of a single run
    def to_s
      run = @results.only.facts
      facts = run.fetch("machine").map { |name, value| "- #{name}: #{value}" }
      <<~TEXT
        # #{@title}, #{run.fetch("date")}

        `#{run.fetch("command")}`#{" (quick: short slices, for orientation only)" if run["quick"]}

        #{facts.join("\n")}

        #{@notes}
        #{table}

        #{verdicts.count(&:met?)} of #{verdicts.size} rows reached. Raw results: raw/*.json.
        #{@appendix&.call(verdicts)}
      TEXT
    end

    private

    def row(verdict)
      told = [*verdict.bars.map { |bar, figure, _| bar.describe(figure) }, *failed(verdict)]
      cells = [verdict.a_case.title, shown(verdict, verdict.ours), shown(verdict, verdict.peers), told.join("; "),
               verdict.met? ? "reached" : "**falls short**"]
      "| #{cells.join(" | ")} |"
    end

    def failed(verdict)
      return [] if verdict.failed.empty?
      ["not measured: #{verdict.failed.join(", ")} (#{verdict.errors.join("; ").gsub("|", "/")})"]
    end

    # "resident peak 180 MB, 10 s after 61 MB" of each, with its label where there is a choice.
    def shown(verdict, servers)
      servers.map do |label, figures|
        told = verdict.a_case.shows.filter_map { |metric| value(metric, figures[metric.to_s]) }
        name = servers.size > 1 || !label.start_with?("chaton") ? "#{label}: " : ""
        "#{name}#{told.join(", ")}"
      end.join("<br>")
    end

    def value(metric, figure)
      "#{METRIC_NAMES.fetch(metric)} #{short(figure)}#{METRIC_UNITS.fetch(metric, "")}" if figure
    end

    def short(value)
      return value.round.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",") if value >= 100
      format("%.3g", value)
    end
  end
end
