# frozen_string_literal: true

require_relative "jobs_status"
require_relative "server_command"
require_relative "status_report"
require_relative "streams_status"

module Chaton
  class CLI
    # chaton top: prints what a running server is doing, repeatedly, with rates.
    class Top < ServerCommand
      # Between two reports.
      INTERVAL_S = 2.0
      # Clears the terminal and moves to its upper left corner.
      HOME = "\e[2J\e[H"

      def run
        loop do
          @out.print HOME if tty?
          @out.puts report
          @out.flush
          # A pipe gets one report.
          return 0 unless tty?

          sleep INTERVAL_S
        end
      rescue Interrupt
        0
      end

      private

      def tty? = @out.respond_to?(:tty?) && @out.tty?

      def report
        status = StreamsStatus.add(JobsStatus.add(ask("status"), @arguments.given), @arguments.given)
        before, @counted = @counted, counts(status)
        [StatusReport.new(status), *(rates(before, @counted) if before)].join("\n")
      end

      # Totals since the start, and when they were read.
      def counts(status)
        workers = Array(status["workers"])
        single = status["service"] || {}
        { "requests" => workers.sum { |one| one["requests_total"].to_i } + single.dig("web", "requests_total").to_i,
          "jobs" => status.dig("jobs", "stats", "processed").to_i,
          "records" => Array(status.dig("streams", "groups")).sum { |group| group["committed"] },
          at_s: Process.clock_gettime(Process::CLOCK_MONOTONIC) }
      end

      # The totals of a replaced worker begin at 0.
      def rates(before, now)
        elapsed_s = now[:at_s] - before[:at_s]
        %w[requests jobs records].map do |name|
          "#{name}: #{Config::Types.thousands([((now[name] - before[name]) / elapsed_s).round, 0].max)}/s"
        end.join("  ")
      end
    end
  end
end
