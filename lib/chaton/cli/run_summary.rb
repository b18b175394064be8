# frozen_string_literal: true

require_relative "../config/types"

module Chaton
  class CLI
    # The summary of a program that `chaton run` has run.
    class RunSummary
      # @param command [Array<String>]
      def initialize(command, outcome, launch_settings)
        @command = command
        @outcome = outcome
        @launch_settings = launch_settings
      end

      def to_s
        ["chaton run: #{@command.first} ended with #{@outcome.ending}", "  #{process}", *("  #{ruby}" if @outcome.ruby),
         "  #{@launch_settings.allocator}", "  #{heap}"].join("\n")
      end

      private

      def process
        peak = @outcome.peak_bytes
        format("%.2f s; %.2f s of CPU in it and %.2f s in the system; %s", @outcome.wall_s, @outcome.user_s,
               @outcome.system_s, peak ? format("at most %.1f MiB", peak.fdiv(1 << 20)) : "its memory was not seen")
      end

      def ruby
        figures = @outcome.ruby
        format("Ruby %s: %s collections (%s full), %.1f ms; %s objects alive, %s of them old", figures[:ruby],
               *figures.values_at(:collections, :full).map { |count| thousands(count) }, figures[:time_ns] / 1e6,
               *figures.values_at(:live, :old).map { |count| thousands(count) })
      end

      def heap
        return "heap: Ruby's own sizes; the next run is sized by this one" unless @launch_settings.entry

        "heap: sized by a run #{@launch_settings.age} ago; #{@launch_settings.heap.why.first}"
      end

      def thousands(number) = Config::Types.thousands(number)
    end
  end
end
