# frozen_string_literal: true

require_relative "../support/chart_row"
require_relative "cases"
require_relative "case_run"
require_relative "summary"

module Bench
  # Chaton beside Sidekiq.
  module Jobs
    # `bin/bench jobs`; Bench::Run calls its methods.
    module Suite
      # Limits of --quick: a run for orientation, too short to be cited.
      QUICK = { rounds: 2, jobs: 10_000 }.freeze

      CHARTS = [
        ChartRow.new(case_name: "drain-1000", title: "1,000 no-op jobs, 100 threads", metric: :rate, unit: "/s"),
        ChartRow.new(case_name: "drain-100000", title: "no-op jobs, 100 threads", metric: :rate, unit: "/s"),
        ChartRow.new(case_name: "delay", title: "no-op jobs, Redis 1 ms away, 10 threads", metric: :rate, unit: "/s"),
        ChartRow.new(case_name: "enqueue-one", title: "enqueue one by one", metric: :rate, unit: "/s"),
        ChartRow.new(case_name: "enqueue-bulk", title: "enqueue 1,000 at once", metric: :rate, unit: "/s"),
        ChartRow.new(case_name: "memory", title: "memory after 100,000 jobs",
                     metric: :pss_mb, unit: " MB", better: :lower)
      ].freeze

      module_function

      def name = "jobs"
      def programs = %w[redis]
      def charts = CHARTS
      def cases = Cases.all
      def summary(results) = Summary.new(results)

      # @return [Hash{Symbol => Object}] the raw results
      def measure(a_case, quick:, progress:)
        a_case = shortened(a_case) if quick
        CaseRun.new(a_case, ->(*slice) { progress.call(line(*slice)) }).run
      end

      def shortened(a_case)
        a_case.dup.tap do |quick|
          quick.rounds = [quick.rounds, QUICK[:rounds]].min
          quick.jobs = [quick.jobs, QUICK[:jobs]].min
        end
      end

      def line(a_case, figures, round)
        shown = figures.slice(:drain_ms, :rate, :ideal, :start_p50_ms, :start_p99_ms, :worker_cpu_us, :redis_cpu_us,
                              :pss_mb, :disk_p99_ms, :threads_created, :fibers_created, :error)
        format("%d/%d  %-24s %s", round + 1, a_case.rounds, figures[:server],
               shown.map { |metric, value| "#{metric} #{value}" }.join("  "))
      end
    end
  end
end
