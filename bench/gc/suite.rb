# frozen_string_literal: true

require_relative "../support/chart_row"
require_relative "../support/report"
require_relative "cases"
require_relative "case_run"
require_relative "curve_table"

module Bench
  module Gc
    # `bin/bench gc`; Bench::Run calls its methods.
    module Suite
      # Limits of --quick: a run for orientation, too short to be cited.
      QUICK = { rounds: 3, seconds: 2 }.freeze
      QUICK_CURVE = { rounds: 1, seconds: 2, factor: 1.25 }.freeze
      QUICK_GAPS = { rounds: 1, seconds: 12 }.freeze
      NOTES = <<~TEXT
        The curve is offered at a constant rate (open-loop of crates/testkit): a latency counts from the moment a request was
        due, even when earlier requests delayed it. A rate is answered in full when there is no error, at most 0.5 % of the
        requests are still open at the end of the step, and p99 is at most 500 ms; two failures in a row end a climb.
        Resident memory is the peak of that step. "GC inside requests" is the time per request that collections took while a
        request was in the application, by GC.total_time in the same middleware for both servers. It, p99 and p99.9 are
        compared at the highest rate that all servers answered in full. Puma runs with one and with five threads, pinned to a
        core and unpinned, and only the fastest setting counts. Each Chaton was booted, used and stopped before, so that it
        had its own reading of the application's heap, as from the second deployment on. The cost of tracing and summaries is
        measured under full load by slices in turn; a ratio is the median of the ratios of each round.
      TEXT

      CHARTS = [
        ChartRow.new(case_name: "curve", title: "templates over 450,000 objects: highest rate answered in full",
                     metric: :full_rate, unit: "/s"),
        ChartRow.new(case_name: "curve", title: "p99.9 at the same rate",
                     metric: :p999_ms, unit: " ms", better: :lower),
        ChartRow.new(case_name: "curve", title: "time in collections inside a request",
                     metric: :gc_us, unit: " µs", better: :lower)
      ].freeze

      module_function

      def name = "gc"
      def programs = %w[wrk]
      def charts = CHARTS
      def cases = Cases.all

      def summary(results)
        Report.new(results, title: "Garbage collection", cases:, notes: NOTES, appendix: CurveTable.method(:render))
      end

      # @return [Hash{Symbol => Object}] the raw results
      def measure(a_case, quick:, progress:)
        a_case = shortened(a_case) if quick
        CaseRun.new(a_case, ->(*slice) { progress.call(line(*slice)) }).run
      end

      def shortened(a_case)
        shorter = { curve: QUICK_CURVE, gaps: QUICK_GAPS }.fetch(a_case.kind, QUICK)
        a_case.dup.tap { |quick| shorter.each { |name, value| quick[name] = value } }
      end

      def line(a_case, server, figures, round)
        shown = figures.slice(:rate, :rps, :achieved_rate, :late, :p99_ms, :p999_ms, :rss_mb, :gc_us, :full_collections,
                              :full_inside, :board_inside, :cpu_us, :kept_up, :error)
        format("%d/%d  %-26s %s", round + 1, a_case.rounds, server.label,
               shown.map { |metric, value| "#{metric} #{value.is_a?(Float) ? value.round(2) : value}" }.join("  "))
      end
    end
  end
end
