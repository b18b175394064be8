# frozen_string_literal: true

require_relative "../support/bar"
require_relative "../support/case"
require_relative "../support/report"
require_relative "chaton_stack"
require_relative "case_run"
require_relative "puma_and_sidekiq"

module Bench
  # A Rails application on Chaton, beside Puma with Sidekiq.
  module Rails
    # `bin/bench rails`; Bench::Run calls its methods.
    module Suite
      NOTES = <<~TEXT
        examples/rails in production, with two workers for web and one process for jobs; both take jobs in Sidekiq's
        format from a Redis. Requests are counted while it is deployed three times: `chaton restart --wait`; a phased
        restart of Puma with `preload_app! false` (one that preloads cannot be restarted so), and Sidekiq ended and started
        again. 100 jobs of 0.1 s run when the process that runs them gets a `kill -9`; it is started again at once. The
        page is then requested by 10 clients beside four jobs that compute. Memory is the sum over all processes at the
        end, with shared pages counted once (PSS). Versions are those that the processes had loaded.
      TEXT

      module_function

      def name = "rails"
      def programs = %w[redis]
      def charts = []
      def summary(results) = Report.new(results, title: "Rails", cases:, notes: NOTES)

      def cases
        [Case.new(name: "stack", rounds: 3, title: "deploys, a kill, and jobs that compute",
                  servers: [ChatonStack, PumaAndSidekiq], shows: %i[failed lost p99_ms pss_mb],
                  bars: [Bar.at_most(:failed, 0, against: nil), Bar.at_most(:lost, 0, against: nil),
                         Bar.at_most(:p99_ms, 0.75), Bar.at_most(:pss_mb, 0.8)])]
      end

      # @return [Hash{Symbol => Object}] the raw results
      def measure(a_case, quick:, progress:)
        a_case.rounds = 1 if quick
        CaseRun.new(a_case, ->(*slice) { progress.call(line(*slice)) }).run
      end

      def line(a_case, figures, round)
        shown = figures.slice(:failed, :requests, :lost, :p99_ms, :pss_mb, :error)
        format("%d/%d  %-18s %s", round + 1, a_case.rounds, figures[:server],
               shown.map { |metric, value| "#{metric} #{value}" }.join("  "))
      end
    end
  end
end
