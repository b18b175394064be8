# frozen_string_literal: true

module Bench
  # Reads the processor time of other processes to the nanosecond; /proc/PID/stat only has hundredths of a second.
  module CpuClock
    # The kernel's number for "time that was scheduled, of all threads of a process", see clock_getcpuclockid(3).
    SCHED = 2
    PID_SHIFT = 3

    module_function

    # @param pids [Array<Integer>]
    # @return [Float] seconds, including threads that have ended
    def seconds(pids) = pids.sum { |pid| Process.clock_gettime((~pid << PID_SHIFT) | SCHED) }

    # @param pids [Array<Integer>]
    # @return [Hash{Array => Float}] seconds by task and name of the thread; threads that have ended are missing
    def threads(pids)
      pids.flat_map { |pid| Dir.glob("/proc/#{pid}/task/*") }.filter_map do |task|
        spent = File.read("#{task}/schedstat").to_i / 1e9
        [[task, File.read("#{task}/comm").chomp], spent]
      rescue Errno::ENOENT, Errno::ESRCH
        nil
      end.to_h
    end

    # @return [Hash{String => Float}] seconds between two readings, by the name of the threads
    def between(earlier, later)
      later.group_by { |(_, name), _| name.sub(/\d+\z/, "") }.transform_values do |found|
        found.sum { |thread, spent| spent - earlier.fetch(thread, 0.0) }
      end
    end
  end
end
