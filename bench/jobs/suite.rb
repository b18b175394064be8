# frozen_string_literal: true

require_relative "cases"
require_relative "contest"
require_relative "summary"

module Bench
  # Measuring job servers: Chaton beside Sidekiq.
  module Jobs
    # `bin/bench jobs`; see Bench::Run for what it answers.
    module Suite
      # Orientation in a few minutes: too short to be cited.
      QUICK = { rounds: 2, jobs: 10_000 }.freeze

      module_function

      def name = "jobs"
      def programs = %w[sidekiq redis]
      def cases = Cases.all
      def summary(folder) = Summary.new(folder)

      # @return [Hash{Symbol => Object}] the raw results
      def measure(a_case, quick:, progress:)
        a_case = shortened(a_case) if quick
        Contest.new(a_case, ->(*told) { progress.call(line(*told)) }).run
      end

      def shortened(a_case)
        a_case.dup.tap do |quick|
          quick.rounds = [quick.rounds, QUICK[:rounds]].min
          quick.jobs = [quick.jobs, QUICK[:jobs]].min
        end
      end

      def line(a_case, figures, round)
        told = figures.slice(:drain_ms, :rate, :ideal, :start_p50_ms, :start_p99_ms, :worker_cpu_us, :redis_cpu_us,
                             :pss_mb, :disk_p99_ms, :threads_created, :fibers_created, :error)
        format("%d/%d  %-24s %s", round + 1, a_case.rounds, figures[:server],
               told.map { |metric, value| "#{metric} #{value}" }.join("  "))
      end
    end
  end
end
