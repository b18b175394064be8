# frozen_string_literal: true

require_relative "chart_row"

module Bench
  # The README's figures, their chart, and the sentence that says with which versions they were measured.
  class Headlines
    ROWS = {
      "web" => [ChartRow.new(case_name: "hello-c100", title: "Web: hello world, 100 clients, 5 threads",
                             metric: :rps, unit: " requests/s"),
                ChartRow.new(case_name: "hog", title: "Web: p99 of hello while two clients send requests of 300 ms CPU",
                             metric: :p99_ms, unit: " ms", better: :lower)],
      "jobs" => [ChartRow.new(case_name: "drain-100000", title: "Jobs: no-op jobs on Redis", metric: :rate,
                              unit: " jobs/s")],
      "memory" => [ChartRow.new(case_name: "payloads", title: "Memory: peak with jobs of 10 KB to 2 MB, 25 threads",
                                metric: :peak_mb, unit: " MB", better: :lower)],
      "streams" => [ChartRow.new(case_name: "raw", title: "Streams: 1,000,000 messages read from Kafka",
                                 metric: :mps, unit: " messages/s")]
    }.freeze
    # Figures of older Rubies are shown only where there are no others.
    RUBY_MIN = Gem::Version.new("3.3")
    PEERS = { "web" => { "puma" => "Puma" }, "jobs" => { "sidekiq" => "Sidekiq" },
              "memory" => { "sidekiq" => "Sidekiq" } }.freeze
    # A figure and where it is from.
    Figure = Struct.new(:row, :bars, :section, :source)
    WIDTH = 118

    # @param sections [Array<PageSection>] the newest Ruby first
    def initialize(sections)
      @figures = ROWS.flat_map do |suite, rows|
        of_suite = sections.select { |section| section.suite.name == suite }
        rows.filter_map { |row| choose(row, of_suite) }
      end
    end

    # @return [Array<(ChartRow, Array)>]
    def chart_rows = @figures.map { |figure| [figure.row, figure.bars] }

    # @return [String]
    def table
      lines = chart_rows.map do |row, ((_, mine), (label, other))|
        "| #{row.title} | **#{row.shown(mine)}** | #{row.shown(other)} (#{label}) | " \
          "#{row.advantage([[nil, mine], [nil, other]])} |"
      end
      ["| | Chaton | peer | better by |", "|---|---:|---:|---:|", *lines].join("\n")
    end

    # @return [String] "Measured on 2 cores: web and jobs with Ruby 3.3.8, Puma 6.6.0 and Sidekiq 7.3.2 on Debian 13; …"
    def sentence
      cores = @figures.map { |figure| figure.source.machine["cores"] }.uniq.join(" or ")
      groups = @figures.group_by { |figure| versions(figure.source) }
      parts = groups.map { |versions, figures| measured(*versions, figures, named: groups.size > 1) }
      "Measured on #{cores} cores#{":" if groups.size > 1} #{parts.join("; ")}."
        .gsub(/(.{1,#{WIDTH}})(?: |\z)/, "\\1\n").chomp
    end

    private

    # A full run goes before a quick one, then the newer Ruby before the older one.
    def choose(row, sections)
      found = sections.filter_map do |section|
        bars = section.bars(row)
        Figure.new(row, bars, section, section.source(row)) unless bars.empty?
      end
      recent = found.select { |figure| figure.section.environment.ruby >= RUBY_MIN }
      found = recent unless recent.empty?
      found.find { |figure| !figure.source.quick? } || found.first
    end

    # @return [Array<String>] ["Ruby 3.3.8", "Debian 13"]
    def versions(source)
      version = source.machine["ruby"].to_s[/\d+\.\d+\.\d+(?:dev)?/]
      ["Ruby #{version}#{" with YJIT" if source.yjit?}", source.os]
    end

    def measured(ruby, os, figures, named:)
      suites = figures.map { |figure| figure.section.suite.name }.uniq
      peers = figures.flat_map do |figure|
        PEERS.fetch(figure.section.suite.name, {})
          .map { |fact, name| "#{name} #{figure.source.machine[fact].to_s[/\d+(?:\.\d+)+/]}" }
      end
      [*(list(suites) if named), "with", list([ruby, *peers.uniq]), "on", os].join(" ")
    end

    def list(words) = [words[0..-2].join(", "), words.last].reject(&:empty?).join(" and ")
  end
end
