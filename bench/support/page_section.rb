# frozen_string_literal: true

require_relative "results"

module Bench
  # What was measured of one suite in one environment: a section of docs/BENCHMARKS.md.
  class PageSection
    TITLES = { "apps" => "Real applications", "rails" => "Rails", "web" => "Web", "jobs" => "Background jobs",
               "streams" => "Streams", "live" => "Event streams", "memory" => "Memory",
               "gc" => "Garbage collection" }.freeze
    VERSIONS = %w[ruby yjit puma sidekiq rails redis commit].freeze

    attr_reader :suite, :environment

    # @param suite [Module] as Bench::Run takes it
    # @param runs [String] the folder that holds all runs
    # @return [Array<PageSection>] the newest Ruby first
    def self.all_of(suite, runs:)
      Results.of_suite(suite.name, runs:).by_environment.map { |environment, results| new(suite, environment, results) }
    end

    # @param results [Results]
    def initialize(suite, environment, results)
      @suite = suite
      @environment = environment
      @results = results
      @summary = suite.summary(results)
    end

    # @return [String] of the suite
    def title = TITLES.fetch(@suite.name)
    def heading = "#{title}, #{@environment}"

    # @return [Results::Source] the newest run
    def newest = @results.only

    # @param row [ChartRow]
    # @return [Array<(String, Float)>] its two bars; [] when it was not measured
    def bars(row)
      verdict = @summary.verdicts.find { |found| found.a_case.name == row.case_name }
      verdict ? row.bars(verdict) : []
    end

    # @param case_name [String]
    # @return [Hash{String => Object}, nil] its raw results
    def raw(case_name) = @results.raw(case_name)

    # @param row [ChartRow] measured
    # @return [Results::Source]
    def source(row) = @results.source(row.case_name)

    # @param notes [Boolean] whether to say how it was measured
    # @return [String] what follows the heading
    def body(notes:)
      reached = "#{@summary.verdicts.count(&:met?)} of #{@summary.verdicts.size} rows reached their bars."
      # An appendix has headings for summary.md, where it stands one level higher.
      [reached, "", @summary.table, *(["", @summary.notes.chomp] if notes),
       *@summary.appendix&.gsub(/^## /, "#### "), "", "Measured in:", "", *sources, ""].join("\n")
    end

    private

    def sources
      @results.used(@summary.verdicts.map { |verdict| verdict.a_case.name }).map do |source, cases|
        "- [#{source.name}](../#{source.path}/summary.md)#{", a quick run" if source.quick?} " \
          "(#{versions(source.machine)}): #{[*cases, *not_measured(source)].join(", ")}"
      end
    end

    def not_measured(source) = source.facts.fetch("not_measured", {}).keys.map { |name| "#{name} (not measured)" }

    def versions(machine)
      machine.slice(*VERSIONS).reject { |_, fact| fact.match?(/not installed|Error\b/) }
        .map { |name, fact| "#{name} #{fact[/\d+(?:\.\w+)+/] || fact}" }.join(", ")
    end
  end
end
