# frozen_string_literal: true

module Bench
  # Shows a progress line on the terminal while a block runs.
  class Progress
    EVERY_S = 0.2
    WIDTH = 24

    # @param title [String]
    # @param tree [ProcTree] of the server, whose processor time and memory are shown
    # @param seconds [Integer] the expected time
    def initialize(title, tree, seconds)
      @title = title
      @tree = tree
      @seconds = seconds
    end

    # @return [Object] the block's result
    def during(&)
      work = Thread.new(&)
      started = now
      first = @tree.read
      show(now - started, first) until work.join(EVERY_S)
      work.value
    ensure
      # Without a terminal there is no progress line, so one line reports the end.
      $stdout.tty? ? puts : puts("  #{@title}: done")
    end

    private

    def show(elapsed_s, first)
      return unless $stdout.tty?
      filled = (WIDTH * [elapsed_s / @seconds, 1.0].min).round
      cpu = @tree.read.cpu_s_since(first) / elapsed_s * 100
      print format("\r\e[K  [%s%s] %s  server: %.0f %% CPU, %.0f MB", "#" * filled, "." * (WIDTH - filled), @title, cpu,
                   @tree.memory_mb[:rss_mb])
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
