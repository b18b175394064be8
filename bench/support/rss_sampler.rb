# frozen_string_literal: true

require "etc"

module Bench
  # Samples the resident memory of a process tree while a block runs.
  class RssSampler
    EVERY_S = 0.25
    # New processes are looked for in every eighth sample, because that reads all of /proc.
    FAMILY_EVERY = 8
    PAGE_BYTES = Etc.sysconf(Etc::SC_PAGESIZE)
    MEGABYTE = 1024.0 * 1024

    # @param tree [ProcTree]
    def initialize(tree)
      @tree = tree
      @samples = []
    end

    # @return [Object] the block's result
    def during
      @stop = Queue.new
      thread = Thread.new { sample until @stop.closed? }
      yield
    ensure
      @stop&.close
      thread&.join
    end

    # @return [Array<(Float, Float)>] seconds since the start, and megabytes
    attr_reader :samples

    # @param from_s [Numeric] since the start
    # @param to_s [Numeric]
    # @return [Float] megabytes; 0 where nothing was sampled
    def peak(from_s = 0, to_s = Float::INFINITY)
      @samples.filter_map { |at_s, mb| mb if at_s.between?(from_s, to_s) }.max || 0.0
    end

    # @return [Float] megabytes at this moment
    def self.now(tree) = (tree.pids.sum { |pid| resident(pid) } / MEGABYTE).round(2)

    # @return [Integer] bytes; 0 when the process is gone
    def self.resident(pid)
      File.read("/proc/#{pid}/statm").split[1].to_i * PAGE_BYTES
    rescue Errno::ENOENT, Errno::ESRCH
      0
    end

    private

    def sample
      @started_s ||= now_s
      @pids = @tree.pids if (@samples.size % FAMILY_EVERY).zero?
      mb = (@pids.sum { |pid| self.class.resident(pid) } / MEGABYTE).round(2)
      @samples << [(now_s - @started_s).round(3), mb]
      sleep EVERY_S
    end

    def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
