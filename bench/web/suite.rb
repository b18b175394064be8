# frozen_string_literal: true

require_relative "../support/chart_row"
require_relative "cases"
require_relative "burst"
require_relative "case_run"
require_relative "idle"
require_relative "jobs_beside"
require_relative "scraped"
require_relative "summary"
require_relative "waiting"

module Bench
  module Web
    # `bin/bench web`; Bench::Run calls its methods.
    module Suite
      # Limits of --quick: a run for orientation, too short to be cited.
      QUICK = { rounds: 2, seconds: 1 }.freeze

      CHARTS = [
        ChartRow.new(case_name: "hello-c10", title: "hello world, 10 clients", metric: :rps, unit: "/s"),
        ChartRow.new(case_name: "hello-c100", title: "hello world, 100 clients", metric: :rps, unit: "/s"),
        ChartRow.new(case_name: "hello-c300", title: "hello world, 300 clients", metric: :rps, unit: "/s"),
        ChartRow.new(case_name: "sinatra", title: "Sinatra, 100 clients", metric: :rps, unit: "/s"),
        ChartRow.new(case_name: "common-page-c100", title: "3 × 2 ms IO + 3 ms CPU, 100 clients",
                     metric: :rps, unit: "/s"),
        ChartRow.new(case_name: "sleep-0.1-c300", title: "sleep 0.1 s, 300 clients", metric: :rps, unit: "/s"),
        ChartRow.new(case_name: "post-chunked", title: "POST 1 KB chunked", metric: :rps, unit: "/s"),
        ChartRow.new(case_name: "stream", title: "streamed response of 1,000 chunks", metric: :rps, unit: "/s"),
        ChartRow.new(case_name: "hog", title: "p99 of hello beside requests that compute 300 ms",
                     metric: :p99_ms, unit: " ms", better: :lower)
      ].freeze

      CASES = [*Cases.all, *Burst::CASES, *JobsBeside::CASES, Waiting::CASE, *Idle::CASES, Scraped::CASE].freeze

      module_function

      def name = "web"
      def programs = %w[rails wrk]
      def charts = CHARTS
      def cases = CASES
      def summary(results) = Summary.new(results)

      # @return [Hash{Symbol => Object}] the raw results
      def measure(a_case, quick:, progress:)
        a_case = shortened(a_case) if quick
        (a_case.kind || CaseRun).new(a_case, ->(*slice) { progress.call(line(*slice)) }).run
      end

      def shortened(a_case)
        a_case.dup.tap do |quick|
          quick.rounds = [quick.rounds, QUICK[:rounds]].min
          quick.seconds = [quick.seconds, QUICK[:seconds]].min
        end
      end

      def line(a_case, figures, round)
        format("%d/%d  %-24s %9.1f req/s  p99 %8.2f ms  %7.1f µs CPU  %.3f waits  %d errors",
               round + 1, a_case.rounds, figures[:server], figures[:rps], figures[:p99_ms] || Float::NAN,
               *figures.values_at(:cpu_us, :waits, :errors))
      end
    end
  end
end
