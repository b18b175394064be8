# frozen_string_literal: true

require "json"

# Counts the jobs that this process ended, and reports to the benchmark through a named pipe at each goal of
# BENCH_GOALS. Counting needs no lock: Ruby switches threads at the ends of methods and in loops, not between reading
# the count and writing it.
module Tally
  @count = 0
  @goals = ENV.fetch("BENCH_GOALS", "").split(",").map(&:to_i)
  @goal = @goals.shift
  @late_ns = []
  @threads = @fibers = @switches = 0

  # Counts calls of Fiber.new.
  module FiberCount
    def initialize(...)
      Tally.fiber
      super
    end
  end

  class << self
    def count
      report if (@count += 1) == @goal
    end

    # @param nanoseconds [Integer] between enqueueing and start
    def late(nanoseconds)
      @late_ns << nanoseconds
      count
    end

    def fiber
      @fibers += 1
    end

    # Counts threads and fibers from now on.
    def watch
      Fiber.prepend(FiberCount)
      TracePoint.new(:thread_begin) { @threads += 1 }.enable
      TracePoint.new(:fiber_switch) { @switches += 1 }.enable
    end

    private

    def report
      at_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      @goal = @goals.shift
      report = { count: @count, at_ns: at_ns, late_ns: @late_ns, threads: @threads, fibers: @fibers,
                 switches: @switches }
      File.write(ENV.fetch("BENCH_PIPE"), JSON.generate(report) << "\n", mode: "a")
      @late_ns = []
    end
  end
end

Tally.watch if ENV["BENCH_WATCH"]
