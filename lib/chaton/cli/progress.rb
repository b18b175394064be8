# frozen_string_literal: true

require_relative "../config/types"

module Chaton
  class CLI
    # A progress bar, on a terminal only: "[######      ]  50 %  500 of 1,000".
    class Progress
      # Characters of the bar.
      WIDTH = 30
      # Shortest time between two updates.
      INTERVAL_S = 0.1

      # @param io [IO] standard error
      # @yieldparam progress [Progress]
      # @return [Object] the block's result; the bar is removed then
      def self.on(io, title, total)
        progress = new(io, title, total)
        yield progress
      ensure
        progress&.wipe
      end

      def initialize(io, title, total)
        @io = io
        @title = title
        @total = total
        @drawn_s = nil
      end

      # @param total [Integer] if it has changed
      def at(done, total = @total)
        return unless @io.respond_to?(:tty?) && @io.tty? && total.positive?

        now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        return if @drawn_s && now_s - @drawn_s < INTERVAL_S

        @drawn_s = now_s
        @io.print "\r#{line([done, total].min, total)}\e[K"
      end

      def wipe
        @io.print "\r\e[K" if @drawn_s
        @drawn_s = nil
      end

      private

      def line(done, total)
        filled = WIDTH * done / total
        format("%<title>s [%<bar>s] %<percent>3d %%  %<done>s of %<total>s",
               title: @title, bar: "#{"#" * filled}#{" " * (WIDTH - filled)}", percent: 100 * done / total,
               done: Config::Types.thousands(done), total: Config::Types.thousands(total))
      end
    end
  end
end
