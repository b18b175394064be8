# frozen_string_literal: true

require_relative "bar_chart"
require_relative "../rails/table"
require_relative "headlines"
require_relative "page_section"

module Bench
  # Writes docs/BENCHMARKS.md, its charts, and the headline figures of the README, from the raw results of bench/runs.
  class Page
    ROOT = File.expand_path("../..", __dir__)

    # @param suites [Hash{String => Module}] as Bench::Run takes them, in the page's order
    # @param runs [String] the folder that holds all runs
    # @param root [String] the folder of README.md and docs
    def initialize(suites, runs: Results::RUNS, root: ROOT)
      @root = root
      @sections = suites.values.flat_map { |suite| PageSection.all_of(suite, runs:) }
      # A chart of each suite, on the Ruby where most of its rows were measured, the newest of several.
      @charted = @sections.reject { |section| section.suite.charts.empty? }.group_by(&:suite)
        .transform_values { |sections| sections.max_by { |section| [chart_rows(section).size, section.environment] } }
    end

    # @return [Array<String>] the files that were written
    def write
      headlines = Headlines.new(@sections)
      charts = @charted.map { |suite, section| chart("bench-#{suite.name}", section.heading, chart_rows(section)) }
      charts << chart("headlines", "Chaton beside its peers, in the same run on the same machine", headlines.chart_rows)
      page = File.join(@root, "docs/BENCHMARKS.md")
      File.write(page, text)
      [page, write_readme(headlines), *charts]
    end

    private

    def text
      <<~TEXT
        # Benchmarks

        Every figure was measured beside a named peer, on the same machine, in the same run, by `bin/bench`. Ratios travel to
        other machines; rates do not. The newest Ruby comes first, and for the same Ruby the newest Debian, which has newer
        peers. Each row shows the newest full run that measured it there, or the newest quick run where there is no full one.
        Both servers run with YJIT where a Ruby from 3.2 on has it. A row that misses its bar says **falls short**. This page is
        written by `bin/bench render`.

        #{groups.map { |sections| contents(sections) }.join("\n")}

        #{groups.map { |sections| [heading(sections), *sections.map { |section| rendered(section) }] }.join("\n")}
      TEXT
    end

    # @return [Array<Array<PageSection>>] the sections of each environment, the newest Ruby first
    def groups = @sections.group_by(&:environment).sort_by(&:first).reverse.map(&:last)

    def contents(sections)
      links = sections.map { |section| "[#{section.title}](##{anchor(section.heading)})" }
      "- #{title(sections)}: #{links.join(" · ")}"
    end

    # "Ruby 3.3, Debian 13", after the newest of the runs
    def title(sections)
      environment = sections.first.environment
      "Ruby #{environment.ruby}#{" with YJIT" if sections.first.newest.yjit?}, #{environment.os}"
    end

    def heading(sections) = "## #{title(sections)}\n"

    def rendered(section)
      first = @sections.find { |other| other.suite == section.suite } == section
      picture = [picture(section), ""] if @charted[section.suite] == section
      ["### #{section.heading}", "", *picture, section.body(notes: first)].join("\n")
    end

    # As GitHub makes it of a heading.
    def anchor(heading) = heading.downcase.gsub(/[^a-z0-9 -]/, "").tr(" ", "-")

    def picture(section)
      path = "images/bench-#{section.suite.name}"
      "<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"#{path}-dark.svg\">" \
        "<img alt=\"#{section.title}\" src=\"#{path}-light.svg\"></picture>"
    end

    # @return [Array<(ChartRow, Array)>] the rows that were measured
    def chart_rows(section)
      section.suite.charts.map { |row| [row, section.bars(row)] }.reject { |_, bars| bars.empty? }
    end

    def chart(file, title, rows)
      File.join(@root, "docs/images", file).tap { |base| BarChart.new(title, rows).write(base) }
    end

    def write_readme(headlines)
      path = File.join(@root, "README.md")
      blocks = { "bench" => "#{headlines.table}\n\n#{headlines.sentence}\n", "rails" => rails }.compact
      File.write(path, blocks.reduce(File.read(path)) { |text, (name, block)| replaced(text, name, block) })
      path
    end

    def replaced(text, name, block) = text.sub(/(?<=<!-- #{name} -->\n).*?(?=<!-- end #{name} -->)/m) { block }

    # @return [String, nil] what happens to a Rails application, on the newest Ruby where it was measured
    def rails
      section = @sections.find { |one| one.suite.name == "rails" } or return
      "#{Rails::Table.new(section.raw("stack")).markdown}\n"
    end
  end
end
