# frozen_string_literal: true

require_relative "../support/chart_row"
require_relative "../support/report"
require_relative "cases"
require_relative "contest"
require_relative "curve_table"

module Bench
  module Gc
    # `bin/bench gc`; see Bench::Run for what it answers.
    module Suite
      # Orientation in a few minutes: too short to be cited.
      QUICK = { rounds: 3, seconds: 2 }.freeze
      QUICK_CURVE = { rounds: 1, seconds: 2, factor: 1.25 }.freeze
      QUICK_GAPS = { rounds: 1, seconds: 12 }.freeze
      NOTES = <<~TEXT
        The curve is offered at a constant rate (open-loop of crates/testkit): a latency counts from the moment a request was
        due, whatever happened before. A rate is answered in full when there is no error, at most 0.5 % are still open at
        the end of the step and p99 is at most 100 ms; two failures in a row end a climb. Resident memory is the peak of
        that step. "GC inside requests" is the time per request that collections took while a request was in the
        application, by GC.total_time as a middleware reads it, the same for both servers; it, p99 and p99.9 are compared at the
        highest rate that all servers answered in full. Of Puma (one thread, five, pinned to a core and not) only the one counts
        that served most. Each Chaton was booted, asked and ended before, so that it had its own reading of the application's
        heap, as from the second deployment on. What tracing and summaries cost is measured under full load by slices in turn;
        a ratio is the median of the ratios of each round.
      TEXT

      CHARTS = [
        ChartRow.new(case_name: "curve", title: "templates over 450,000 objects: highest rate answered in full", metric: :full_rate,
                     unit: "/s"),
        ChartRow.new(case_name: "curve", title: "p99.9 at the same rate", metric: :p999_ms,
                     unit: " ms", better: :lower),
        ChartRow.new(case_name: "curve", title: "time in collections inside a request", metric: :gc_us,
                     unit: " µs", better: :lower)
      ].freeze

      module_function

      def name = "gc"
      def programs = %w[puma wrk]
      def charts = CHARTS
      def cases = Cases.all

      def summary(results)
        Report.new(results, title: "Garbage collection", cases:, notes: NOTES, appendix: CurveTable.method(:render))
      end

      # @return [Hash{Symbol => Object}] the raw results
      def measure(a_case, quick:, progress:)
        a_case = shortened(a_case) if quick
        Contest.new(a_case, ->(*told) { progress.call(line(*told)) }).run
      end

      def shortened(a_case)
        shorter = { curve: QUICK_CURVE, gaps: QUICK_GAPS }.fetch(a_case.kind, QUICK)
        a_case.dup.tap { |quick| shorter.each { |name, value| quick[name] = value } }
      end

      def line(a_case, server, figures, round)
        told = figures.slice(:rate, :rps, :achieved_rate, :late, :p99_ms, :p999_ms, :rss_mb, :gc_us, :full_collections,
                             :full_inside, :board_inside, :cpu_us, :kept_up, :error)
        format("%d/%d  %-26s %s", round + 1, a_case.rounds, server.label,
               told.map { |metric, value| "#{metric} #{value.is_a?(Float) ? value.round(2) : value}" }.join("  "))
      end
    end
  end
end
