# frozen_string_literal: true

require "cgi/escape"
require "fileutils"

module Bench
  # Draws pairs of horizontal bars as SVG: Chaton's figure above its peer's, with the longer bar as wide as the chart.
  # There is one file for light pages and one for dark pages.
  class BarChart
    THEMES = { "light" => { text: "#1f2328", muted: "#59636e", ours: "#0969da", peer: "#afb8c1", back: "#ffffff" },
               "dark" => { text: "#f0f6fc", muted: "#9198a1", ours: "#4493f8", peer: "#575e68",
                           back: "#0d1117" } }.freeze
    WIDTH = 760
    LEFT = 20
    BAR_WIDTH = 420
    BAR_HEIGHT = 14
    ROW_HEIGHT = 66

    # @param title [String]
    # @param rows [Array<(ChartRow, Array<(String, Float)>)>] with the bars of {ChartRow#bars}
    def initialize(title, rows)
      @title = title
      @rows = rows
    end

    # @param base [String] path of the files without "-light.svg" or "-dark.svg"
    def write(base)
      FileUtils.mkdir_p(File.dirname(base))
      THEMES.each { |name, colours| File.write("#{base}-#{name}.svg", svg(colours)) }
    end

    private

    def svg(colours)
      height = 48 + (@rows.size * ROW_HEIGHT)
      body = @rows.each_with_index.map { |(row, bars), index| pair(row, bars, 44 + (index * ROW_HEIGHT), colours) }
      <<~SVG
        <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 #{WIDTH} #{height}" width="#{WIDTH}" height="#{height}" role="img" aria-label="#{escape(@title)}" font-family="system-ui, -apple-system, 'Segoe UI', sans-serif">
        <rect width="#{WIDTH}" height="#{height}" fill="#{colours[:back]}"/>
        #{text(LEFT, 26, @title, colours[:text], size: 16, weight: 600)}
        #{body.join("\n")}
        </svg>
      SVG
    end

    def pair(row, bars, top, colours)
      longest = bars.map(&:last).max
      hint = row.better == :higher ? "" : " (less is better)"
      lines = bars.each_with_index.map do |(label, figure), index|
        bar(label, row.shown(figure), figure / longest, top + 18 + (index * (BAR_HEIGHT + 4)),
            colours, index.zero? ? :ours : :peer)
      end
      [text(LEFT, top + 12, row.title + hint, colours[:text], size: 13),
       text(WIDTH - LEFT, top + 12, row.advantage(bars), colours[:ours], size: 14, weight: 600, anchor: "end"),
       *lines].join("\n")
    end

    def bar(label, figure, share, top, colours, kind)
      width = [BAR_WIDTH * share, 2].max.round(1)
      %(<rect x="#{LEFT}" y="#{top}" width="#{width}" height="#{BAR_HEIGHT}" rx="2" fill="#{colours[kind]}"/>\n) +
        text(LEFT + width + 8, top + 11, "#{figure}  #{label}", colours[:muted], size: 12)
    end

    def text(left, baseline, words, colour, size:, weight: 400, anchor: "start")
      "<text x=\"#{left}\" y=\"#{baseline}\" font-size=\"#{size}\" font-weight=\"#{weight}\" fill=\"#{colour}\" " \
        "text-anchor=\"#{anchor}\">#{escape(words)}</text>"
    end

    def escape(words) = CGI.escapeHTML(words)
  end
end
