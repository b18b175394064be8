# frozen_string_literal: true

require_relative "bar_chart"
require_relative "chart_row"
require_relative "results"

module Bench
  # Writes docs/BENCHMARKS.md, its charts, and the headline figures of the README, from the raw results of bench/runs.
  class Page
    ROOT = File.expand_path("../..", __dir__)
    PATH = File.join(ROOT, "docs/BENCHMARKS.md")
    IMAGES = File.join(ROOT, "docs/images")
    README = File.join(ROOT, "README.md")
    TITLES = { "web" => "Web", "jobs" => "Background jobs", "streams" => "Streams", "memory" => "Memory",
               "gc" => "Garbage collection" }.freeze
    VERSIONS = %w[ruby puma sidekiq redis commit].freeze
    # The five figures of the README.
    HEADLINES = {
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

    # @param suites [Hash{String => Module}] as Bench::Run takes them
    def initialize(suites)
      @suites = suites
      @results = suites.to_h { |name, _| [name, Results.of_suite(name)] }
      @summaries = suites.to_h { |name, suite| [name, suite.summary(@results.fetch(name))] }
    end

    # @return [Array<String>] the files that were written
    def write
      charts = @suites.map { |name, suite| chart("bench-#{name}", TITLES.fetch(name), name => suite.charts) }
      charts << chart("headlines", "Chaton beside its peers, in the same run on the same machine", HEADLINES)
      File.write(PATH, page)
      File.write(README, readme)
      [PATH, README, *charts]
    end

    private

    def page
      <<~TEXT
        # Benchmarks

        Every figure was measured beside a named peer, on the same machine, in the same run, by `bin/bench`. Ratios travel to
        other machines; rates do not. Each row shows the newest full run that measured it, or the newest quick run where there
        is no full one. A row that misses its bar says **falls short**. This page is written by `bin/bench render`.

        #{@suites.keys.map { |name| "[#{TITLES.fetch(name)}](##{anchor(name)})" }.join(" · ")}

        #{@suites.keys.map { |name| section(name) }.join("\n")}
      TEXT
    end

    def anchor(name) = TITLES.fetch(name).downcase.tr(" ", "-")

    def section(name)
      summary = @summaries.fetch(name)
      reached = "#{summary.verdicts.count(&:met?)} of #{summary.verdicts.size} rows reached their bars."
      [heading(name), picture("images/bench-#{name}", TITLES.fetch(name)), "", reached, "", summary.table, "",
       summary.remarks, "", "Measured in:", "", *sources(name, summary), ""].join("\n")
    end

    def heading(name) = "## #{TITLES.fetch(name)}\n"

    def sources(name, summary)
      @results.fetch(name).used(summary.verdicts.map { |verdict| verdict.a_case.name }).map do |source, cases|
        machine = source.facts.fetch("machine")
        versions = machine.slice(*VERSIONS).map { |key, value| "#{key} #{version(value)}" }
        "- [#{source.name}](../#{source.path}/summary.md)#{", a quick run" if source.quick?} " \
          "(#{versions.join(", ")}): #{cases.join(", ")}"
      end
    end

    # "ruby 3.1.2p20 (2022-…)" → "3.1.2p20"
    def version(fact) = fact[/\d+(?:\.\w+)+/] || fact

    def picture(path, title)
      "<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"#{path}-dark.svg\">" \
        "<img alt=\"#{title}\" src=\"#{path}-light.svg\"></picture>"
    end

    def chart(file, title, rows_of)
      base = File.join(IMAGES, file)
      BarChart.new(title, rows(rows_of)).write(base)
      base
    end

    # @return [Array<(ChartRow, Array)>] the rows that were measured
    def rows(rows_of)
      rows_of.flat_map do |suite, rows|
        verdicts = @summaries.fetch(suite).verdicts.to_h { |verdict| [verdict.a_case.name, verdict] }
        rows.filter_map do |row|
          bars = verdicts[row.case_name]&.then { |verdict| row.bars(verdict) } || []
          [row, bars] unless bars.empty?
        end
      end
    end

    def readme
      lines = rows(HEADLINES).map do |row, ((_, mine), (label, other))|
        advantage = row.advantage([[nil, mine], [nil, other]])
        "| #{row.title} | **#{row.shown(mine)}** | #{row.shown(other)} (#{label}) | #{advantage} |"
      end
      table = ["| | Chaton | peer | better by |", "|---|---:|---:|---:|", *lines].join("\n")
      File.read(README).sub(/(?<=<!-- bench -->\n).*?(?=<!-- end bench -->)/m) { "#{table}\n" }
    end
  end
end
