# frozen_string_literal: true

require "json"

# Counts the jobs that this process ended, and tells the benchmark through a named pipe when as many have ended as it
# waits for: in BENCH_GOALS, one after another. Ruby switches threads at the ends of methods and at loops, so that
# nothing comes between reading the count and writing it.
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
    # @return [void]
    def count
      reached if (@count += 1) == @goal
    end

    # @param nanoseconds [Integer] between enqueueing and start
    # @return [void]
    def late(nanoseconds)
      @late_ns << nanoseconds
      count
    end

    # @return [void]
    def fiber
      @fibers += 1
    end

    # Counts threads and fibers from now on.
    #
    # @return [void]
    def watch
      Fiber.prepend(FiberCount)
      TracePoint.new(:thread_begin) { @threads += 1 }.enable
      TracePoint.new(:fiber_switch) { @switches += 1 }.enable
    end

    private

    def reached
      at_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      @goal = @goals.shift
      told = { count: @count, at_ns: at_ns, late_ns: @late_ns, threads: @threads, fibers: @fibers, switches: @switches }
      File.write(ENV.fetch("BENCH_PIPE"), JSON.generate(told) << "\n", mode: "a")
      @late_ns = []
    end
  end
end

Tally.watch if ENV["BENCH_WATCH"]
