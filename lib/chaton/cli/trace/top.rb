# frozen_string_literal: true

require "io/console"
require_relative "command"
require_relative "rendering"

module Chaton
  class CLI
    module Trace
      # chaton trace top: prints the stacks that hold most, repeatedly.
      class Top < Command
        include Rendering

        # Between two reports.
        INTERVAL_S = 2.0
        # Clears the terminal and moves to its upper left corner.
        HOME = "\e[2J\e[H"

        # Field => label.
        COUNTS = { "windows" => "windows", "sampled" => "sampled", "live_samples" => "alive" }.freeze

        def self.own_options = %i[worker by]

        def run
          by = value(:by)
          loop do
            text = report(by)
            @out.print HOME if tty?
            @out.puts tty? ? visible(text) : text
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

        def report(by)
          result = ask_workers("report")
          [*result.answers.map { |answer| head(answer.status) }, *result.warnings, "",
           render(result.answers, :text, by)].join("\n")
        end

        def head(status)
          counts = COUNTS.map { |name, words| "#{words} #{shown(status[name])}" }
          "worker #{status["worker"]} (pid #{status["pid"]})  #{status["running"] ? "traces" : "has stopped"}  " \
            "#{shown(status["seconds"]&.round)} s  #{counts.join("  ")}"
        end

        def shown(number) = number ? Config::Types.thousands(number) : "-"

        # Only what fits, so that the beginning stays visible.
        def visible(text)
          rows, columns = @out.winsize
          return text unless rows.positive?

          text.lines.first(rows - 1).map { |line| line.chomp[0, columns] }.join("\n")
        end
      end
    end
  end
end
