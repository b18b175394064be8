# frozen_string_literal: true

require_relative "../../config/types"
require_relative "../../telemetry/size"
require_relative "../paint"
require_relative "../status_report"

module Chaton
  class CLI
    class Top < ServerCommand
      # What the screen shows: the lines of a frame, and what keys change about it. It knows no terminal.
      class View
        # Columns by which rows can be sorted => the value of a row.
        ORDERS = {
          "worker" => ->(row, _) { row.worker }, "memory" => ->(row, _) { -row.pss.to_i },
          "running" => ->(row, _) { -row.running.to_i }, "rate" => ->(row, rates) { -rates.of_pid(row.pid).to_f }
        }.freeze
        FILTERS = [nil, "web", "jobs", "streams"].freeze
        KEYS = "q quit  s sort  r reverse  f role  up/down choose  enter what it runs"
        # Characters of a bar in a row, and of one in the head.
        ROW_BAR = 8
        HEAD_BAR = 20
        # The colour of a bar from this share of the whole on.
        COLOURS = { 0.95 => :red, 0.75 => :yellow, 0 => :green }.freeze

        # @return [Sample::Row, nil] the worker whose units are to be shown
        attr_reader :opened

        def initialize(rates, paint:, glyphs: Glyphs.new)
          @rates = rates
          @paint = paint
          @glyphs = glyphs
          @order = @filter = @chosen = 0
        end

        # @return [Symbol, nil] :quit
        def press(key)
          case key
          when "q", "\u0003" then return :quit
          when "s" then @order = (@order + 1) % ORDERS.size
          when "r" then @reverse = !@reverse
          when "f" then @filter = (@filter + 1) % FILTERS.size
          when "k", :up then @chosen = [@chosen - 1, 0].max
          when "j", :down then @chosen += 1
          when :enter then @opened = @opened ? nil : @rows&.at(@chosen)
          when :escape then @opened = nil
          end
          nil
        end

        # @param units [Array<Hash>, String, nil] of the opened worker: what it runs, or why that is not known
        # @param trouble [String, nil] why there is no newer sample
        # @param rows [Integer] of the screen
        # @return [Array<String>] at most so many lines, none of them longer
        def lines(sample, rows:, columns:, units: nil, trouble: nil)
          body = [*head(sample, columns), "", *(@opened ? units_lines(units) : table(sample))]
          body << "" << style(trouble, :red) if trouble
          foot = style("#{KEYS}   #{state}", :dim)
          shown = body.first([rows - 1, 0].max)
          [*shown, *Array.new([rows - 1 - shown.size, 0].max, ""), foot].first(rows).map { |line| fit(line, columns) }
        end

        private

        # A text with its styles; widths are counted without them.
        Styled = Struct.new(:text, :styles)
        private_constant :Styled

        def style(text, *styles) = Styled.new(text, styles)

        def fit(line, columns)
          parts = line.is_a?(Array) ? line : [line]
          left = columns
          parts.map do |part|
            text, styles = part.is_a?(Styled) ? part.to_a : [part, []]
            text = text.gsub(/[[:cntrl:]]+/, " ")[0, left]
            left -= text.length
            @paint.call(text, *styles)
          end.join
        end

        def state
          "by #{ORDERS.keys[@order]}#{" reversed" if @reverse}, role #{FILTERS[@filter] || "all"}"
        end

        def head(sample, columns)
          report = StatusReport.new(sample.status, columns: columns)
          busy, threads = sample.threads
          used, limit = sample.memory
          memory = Telemetry::Size.of(used) + (limit ? " of #{Telemetry::Size.of(limit)}" : "")
          title, *listening = report.head.lines(chomp: true)
          [style(title, :bold), *listening, "", rates_line,
           [*bar("threads ", busy, threads, HEAD_BAR), " #{busy} of #{threads} run work"],
           [*(limit ? bar("memory  ", used, limit, HEAD_BAR) : ["memory  "]), " #{memory}"],
           *report.stores.flat_map { |text| text.lines(chomp: true) }]
        end

        def rates_line
          %w[requests jobs records].flat_map do |name|
            values = @rates.of(name)
            now = values.last ? "#{Config::Types.thousands(values.last.round)}/s" : "-"
            ["#{name} ", style(now, :bold), " ", style(@glyphs.curve(values, HEAD_BAR - 4), :cyan), "   "]
          end
        end

        def bar(title, part, whole, width)
          share = whole.to_i.zero? ? 0 : part.to_f / whole
          _, colour = COLOURS.find { |from, _| share >= from }
          [title, style(@glyphs.bar(share, width), colour)]
        end

        # Units of work are requests, jobs and batches.
        COLUMNS = %w[worker roles pid state up conns queued units/s memory].freeze
        private_constant :COLUMNS

        def table(sample)
          @rows = arranged(sample.rows)
          @chosen = @chosen.clamp(0, [@rows.size - 1, 0].max)
          cells = [COLUMNS, *@rows.map { |row| cells(row) }]
          widths = cells.transpose.map { |column| column.map(&:length).max }
          first, *others = cells.map { |row| row.zip(widths).map { |text, width| text.rjust(width) }.join("  ") }
          lines = others.zip(@rows).each_with_index.map { |(text, row), at| line(text, row, at) }
          [style("#{first}  busy", :bold), *lines]
        end

        def line(text, row, at)
          marks = at == @chosen ? [:reverse] : ([:yellow] unless row.ready)
          busy = row.threads.to_i.positive? ? bar(" ", row.running.to_i, row.threads, ROW_BAR) : []
          memory = row.soft ? bar("  ceiling ", row.pss.to_i, row.soft, ROW_BAR) : []
          [style(text, *marks), "  #{row.running || "-"}/#{row.threads || "-"}", *busy, *memory]
        end

        def arranged(rows)
          wanted = FILTERS[@filter]
          found = rows.select { |row| wanted.nil? || Array(row.roles).include?(wanted) }
          found = found.sort_by { |row| [ORDERS.values[@order].call(row, @rates), row.worker.to_i] }
          @reverse ? found.reverse : found
        end

        def cells(row)
          rate = @rates.of_pid(row.pid)
          state = row.state == "ready" && !row.ready ? "not ready" : row.state.to_s
          [row.worker.to_s, Array(row.roles).join("+"), row.pid.to_s, state,
           StatusReport.duration(row.age_s), *[row.connections, row.queued].map { |count| count ? count.to_s : "-" },
           rate ? Config::Types.thousands([rate, 0].max.round) : "-", Telemetry::Size.of(row.pss)]
        end

        def units_lines(units)
          title = style("worker #{@opened.worker} runs", :bold)
          return [title, units || "asking ..."] unless units.is_a?(Array)
          return [title, "nothing"] if units.empty?

          [title, *units.map do |unit|
            context = Hash(unit["context"]).map { |name, value| "#{name}=#{value}" }.join(" ")
            age = Config::Types.thousands(unit["age_ms"]).rjust(9)
            "#{age} ms  thread #{unit["thread"]}  cpu #{unit["cpu_ms"]} ms  #{unit["what"]}  #{context}"
          end]
        end
      end
    end
  end
end
