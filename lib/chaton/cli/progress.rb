# frozen_string_literal: true

require "io/console"
require_relative "../config/types"
require_relative "paint"

module Chaton
  class CLI
    # How far long work has come: a bar on a terminal, "delete [####    ]  50 %  1,500 of 3,000  750/s  2 s left", else
    # a line now and then.
    class Progress
      # Characters of the longest bar, and of the shortest that is drawn.
      WIDTH = 30
      WIDTH_MIN = 5
      # Shortest time between two updates of a bar, and between two lines.
      INTERVAL_S = 0.1
      LINE_INTERVAL_S = 5.0
      # Columns of a terminal that does not tell its size.
      COLUMNS = 80

      # @param io [IO] standard error
      # @return [Object] the block's result; the bar is removed then
      def self.on(io, title, total, clock: nil)
        progress = new(io, title, total, **{ clock: clock }.compact)
        yield progress
      ensure
        progress&.wipe
      end

      def initialize(io, title, total, clock: -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) })
        @io = io
        @title = title
        @total = total
        @clock = clock
        @terminal = Paint.terminal?(io)
        @begun_s = clock.call
        # A bar is drawn at once, a line when the work has lasted.
        @shown_s = @begun_s unless @terminal
      end

      # @param total [Integer] if it has changed
      def at(done, total = @total)
        return unless total.positive?

        now_s = @clock.call
        return if @shown_s && now_s - @shown_s < (@terminal ? INTERVAL_S : LINE_INTERVAL_S)

        @shown_s = now_s
        done = [done, total].min
        facts = facts(done, total, now_s - @begun_s)
        @terminal ? draw(done, total, facts) : @io.puts("#{@title}: #{facts}")
      end

      def wipe
        @io.print "\r\e[K" if @terminal && @shown_s
        @shown_s = nil if @terminal
      end

      private

      def draw(done, total, facts)
        width = (columns - @title.length - facts.length - 6).clamp(0, WIDTH)
        filled = width * done / total
        bar = " [#{"#" * filled}#{" " * (width - filled)}]" if width >= WIDTH_MIN
        @io.print "\r#{"#{@title}#{bar} #{facts}"[0, columns - 1]}\e[K"
      end

      def facts(done, total, elapsed_s)
        rate = done / elapsed_s if elapsed_s.positive? && done.positive?
        [format("%3d %%", 100 * done / total), "#{thousands(done)} of #{thousands(total)}",
         *(["#{thousands(rate.round)}/s", "#{duration((total - done) / rate)} left"] if rate)].join("  ")
      end

      def duration(seconds)
        minutes, rest = seconds.ceil.divmod(60)
        return "#{rest} s" if minutes.zero?

        minutes < 60 ? "#{minutes} min" : "#{minutes / 60} h #{minutes % 60} min"
      end

      def columns
        columns = @io.respond_to?(:winsize) ? @io.winsize.last : 0
        columns.positive? ? columns : COLUMNS
      rescue SystemCallError
        COLUMNS
      end

      def thousands(number) = Config::Types.thousands(number)
    end
  end
end
