# frozen_string_literal: true

require_relative "bar"
require_relative "results"
require_relative "verdict"

module Bench
  # Renders raw results as a table of one row for each case, with the metrics that the case shows.
  class Report
    HEAD = ["| case | Chaton | beside | bars | |", "|---|---|---|---|---|"].freeze

    # @param results [Results]
    # @param title [String]
    # @param cases [Array<#name, #title, #servers, #shows, #bars>]
    # @param notes [String] how it was measured
    # @param appendix [#call, nil] called with the verdicts; returns the text after the table
    def initialize(results, title:, cases:, notes:, appendix: nil)
      @results = results
      @title = title
      @cases = cases
      @notes = notes
      @appendix = appendix
    end

    # @return [String] how it was measured
    attr_reader :notes

    # @return [Array<Verdict>] of the cases that were run
    def verdicts
      @verdicts ||= @cases.filter_map { |a_case| @results.raw(a_case.name)&.then { |raw| verdict(a_case, raw) } }
    end

    # @return [String]
    def table = [*head, *verdicts.map { |verdict| row(verdict) }].join("\n")

    # @return [String, nil] the text after the table
    def appendix = @appendix&.call(verdicts)

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
        #{appendix}
      TEXT
    end

    private

    def head = HEAD
    def verdict(a_case, raw) = Verdict.new(a_case, raw)

    def row(verdict)
      results = [*verdict.bars.map { |bar, figure, _| bar.describe(figure) }, *failed(verdict)]
      cells(verdict.a_case.title, shown(verdict, verdict.ours), shown(verdict, verdict.peers), results.join("; "),
            mark(verdict.met?))
    end

    def cells(*texts) = "| #{texts.join(" | ")} |"
    def mark(met) = met ? "reached" : "**falls short**"

    def failed(verdict)
      return [] if verdict.failed.empty?
      ["not measured: #{verdict.failed.join(", ")} (#{verdict.errors.join("; ").gsub("|", "/")})"]
    end

    # "resident peak 180 MB, 10 s after 61 MB" of each server, with its label where there are several.
    def shown(verdict, servers)
      servers.map do |label, figures|
        values = verdict.a_case.shows.filter_map { |metric| value(metric, figures[metric.to_s]) }
        name = servers.size > 1 || !label.start_with?("chaton") ? "#{label}: " : ""
        "#{name}#{values.join(", ")}"
      end.join("<br>")
    end

    def value(metric, figure)
      return unless figure
      "#{METRIC_NAMES.fetch(metric)} #{Bench.short(figure, thousands: true)}#{METRIC_UNITS.fetch(metric, "")}"
    end
  end
end
