# frozen_string_literal: true

require_relative "../support/chart_row"
require_relative "../support/report"
require_relative "cases"
require_relative "case_run"

module Bench
  # Chaton beside Sidekiq on the C library's own allocator, and beside itself.
  module Memory
    # `bin/bench memory`; Bench::Run calls its methods.
    module Suite
      # Limits of --quick: a run for orientation, too short to be cited.
      QUICK = { rounds: 1, seconds: 12, jobs: 60, requests: 500 }.freeze
      NOTES = <<~TEXT
        Megabytes are resident, of all the server's processes, sampled four times a second; a figure is the median of
        slices in turn, each with a server process of its own, and a ratio is the median of the ratios of each round. Jobs
        make their payloads from a seed in the queue, in the same order for all servers. "10 s after the load" begins when
        no job is left. Each Chaton was booted, used for a moment and stopped before, so that it had its own reading of the
        application's heap, as from the second deployment on. Private and shared memory is from smaps_rollup, as the mean
        of the workers. CPU is the server's alone.
      TEXT

      CHARTS = [
        ChartRow.new(case_name: "payloads", title: "peak with jobs of 10 KB to 2 MB, 25 threads",
                     metric: :peak_mb, unit: " MB", better: :lower),
        ChartRow.new(case_name: "payloads", title: "10 s after the load",
                     metric: :after_mb, unit: " MB", better: :lower),
        ChartRow.new(case_name: "bursts", title: "after ten bursts", metric: :burst_10_mb, unit: " MB", better: :lower)
      ].freeze

      module_function

      def name = "memory"
      def programs = %w[redis]
      def charts = CHARTS
      def cases = Cases.all
      def summary(results) = Report.new(results, title: "Memory", cases:, notes: NOTES)

      # @return [Hash{Symbol => Object}] the raw results
      def measure(a_case, quick:, progress:)
        a_case = shortened(a_case) if quick
        CaseRun.new(a_case, ->(*slice) { progress.call(line(*slice)) }).run
      end

      def shortened(a_case)
        a_case.dup.tap do |quick|
          QUICK.each { |name, value| quick[name] = [quick[name], value].min if quick[name] }
        end
      end

      def line(a_case, figures, round)
        shown = figures.slice(:jobs, :work_per_cpu_s, :peak_mb, :last_mb, :climb, :after_mb, :burst_2_mb, :burst_10_mb,
                              :growth, :private_mb, :shared_mb, :error)
        format("%d/%d  %-40s %s", round + 1, a_case.rounds, figures[:server],
               shown.map { |metric, value| "#{metric} #{value}" }.join("  "))
      end
    end
  end
end
