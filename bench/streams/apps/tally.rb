# frozen_string_literal: true

require "json"

# Counts the records of this process by topic, and reports to the benchmark through a named pipe at each goal of
# BENCH_GOALS. A report covers the records since the previous report.
module Tally
  @goals = ENV.fetch("BENCH_GOALS", "").split(",").map(&:to_i)
  @lock = Mutex.new

  class << self
    # Counts a batch; the block works on it.
    #
    # @param topic [String]
    # @param size [Integer] records
    def during(topic, size)
      @from_ns || @lock.synchronize { begin_report }
      began_ns = now_ns
      yield
      @lock.synchronize { count(topic, size, began_ns) }
    end

    # @param nanoseconds [Integer] between producing and consuming
    def late(nanoseconds) = @late_ns << nanoseconds

    private

    def begin_report
      return if @from_ns
      @count = @batches = 0
      @late_ns = []
      @topics = {}
      @cpu_s = cpu_now_s
      @from_ns = now_ns
    end

    def count(topic, size, began_ns)
      @count += size
      @batches += 1
      spent = (@topics[topic] ||= { count: 0, from_ns: began_ns })
      spent[:count] += size
      spent[:to_ns] = now_ns
      report if @goals.first && @count >= @goals.first
    end

    def report
      @goals.shift
      report = { count: @count, batches: @batches, from_ns: @from_ns, to_ns: now_ns, cpu_s: cpu_now_s - @cpu_s,
                 topics: @topics, late_ns: @late_ns, gc: GC.count }
      @from_ns = nil
      File.write(ENV.fetch("BENCH_PIPE"), JSON.generate(report) << "\n", mode: "a")
    end

    # Includes all threads of this process: Ruby's, the engine's and the driver's.
    def cpu_now_s = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
    def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  end
end
