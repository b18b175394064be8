# frozen_string_literal: true

require "io/console"
require_relative "jobs_status"
require_relative "paint"
require_relative "server_command"
require_relative "status_report"
require_relative "streams_status"
require_relative "trace/answer_socket"

module Chaton
  class CLI
    # chaton top: prints what `chaton status` prints again and again until Ctrl-C, with rates and what the workers run;
    # into a pipe, once and without these.
    class Top < ServerCommand
      # Between two questions.
      INTERVAL_S = 2.0
      # Time for the workers' answers; the thread that gives one needs the GVL.
      ANSWER_S = 2.0
      # Units of work that are printed, those that have run longest.
      RUNNING_MAX = 10
      # Draws over the former frame, without clearing it first, and cuts lines that are wider than the terminal.
      BEGIN_FRAME = "\e[?7l\e[H"
      # Clears what is left of it, and lines are wrapped again.
      END_FRAME = "\e[J\e[?7h"
      # A terminal that does not tell its size.
      ROWS = 24

      def run
        status = self.status
        return @out.puts(StatusReport.new(status)) || 0 unless Paint.terminal?(@out)

        loop do
          draw(status)
          sleep INTERVAL_S
          status = status_or_trouble
        end
      rescue Interrupt
        0
      rescue Errno::EIO
        # The terminal has gone.
        1
      end

      private

      def status = StreamsStatus.add(JobsStatus.add(ask("status"), @arguments.given), @arguments.given)

      def status_or_trouble
        status
      rescue Chaton::Error => e
        e.message
      end

      # @param status [Hash{String=>Object}, String] a String says why there is none
      def draw(status)
        rows, columns = @out.winsize
        text = status.is_a?(String) ? Paint.for(@out).call(status, :red) : report(status, columns)
        lines = text.lines(chomp: true).first((rows.positive? ? rows : ROWS) - 1)
        @out.write("#{BEGIN_FRAME}#{lines.map { |line| "#{line}\e[K\r\n" }.join}#{END_FRAME}")
        @out.flush
      end

      def report(status, columns)
        status = { **status, "running" => running } if status["workers"]
        "#{rates(status)}\n#{StatusReport.new(status, paint: Paint.for(@out), columns: (columns if columns.positive?))}"
      end

      # The totals of a replaced worker begin at 0.
      def rates(status)
        now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        counts = counts(status)
        before, at_s = @before
        @before = [counts, now_s]
        counts.map do |name, count|
          rate = before && Config::Types.thousands(([count - before[name], 0].max / (now_s - at_s)).round)
          "#{name} #{rate || "-"}/s"
        end.join("  ")
      end

      # Totals of the server and of its stores.
      def counts(status)
        webs = [*status["workers"], status.dig("service", "web")].compact
        { "requests" => webs.sum { |web| web["requests_total"].to_i },
          "jobs" => status.dig("jobs", "stats", "processed").to_i,
          "records" => Array(status.dig("streams", "groups")).sum { |group| group["committed"].to_i } }
      end

      # The workers answer themselves, because their supervisor does not know.
      #
      # @return [Array<Hash{String=>Object}>]
      def running
        answers = Trace::AnswerSocket.open(beside: control_socket) do |socket|
          client = Control::Client.new(control_socket)
          asked = client.call("trace", action: "running", worker: nil, reply_to: socket.path).fetch("asked")
          socket.collect(asked.size, ANSWER_S).select(&:ok?)
        end
        units = answers.flat_map { |one| one.header.fetch("running").map { |unit| { **unit, "worker" => one.worker } } }
        units.max_by(RUNNING_MAX) { |unit| unit["age_ms"] }
      rescue ControlError
        # No worker is ready.
        []
      end
    end
  end
end
