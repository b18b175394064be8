# frozen_string_literal: true

require "etc"

module Bench
  # Reads processor time, waits and memory of a process and its descendants from /proc. The cost of a slice is the
  # difference of two readings.
  class ProcTree
    TICKS_PER_S = Etc.sysconf(Etc::SC_CLK_TCK).to_f
    # Index of utime and stime among the fields of /proc/PID/stat that follow the command's name.
    UTIME = 11
    STIME = 12
    PPID = 1

    # `waits` has the number of voluntary context switches by thread.
    Reading = Struct.new(:cpu_s, :waits, keyword_init: true) do
      # @return [Integer] voluntary context switches since the earlier reading; a thread that ended in between is not
      #   counted, a thread that began counts from zero
      def waits_since(earlier) = waits.sum { |thread, count| count - earlier.waits.fetch(thread, 0) }
      def cpu_s_since(earlier) = cpu_s - earlier.cpu_s
    end

    # @param root_pid [Integer]
    def initialize(root_pid)
      @root_pid = root_pid
    end

    # @return [Reading]
    def read
      found = pids
      Reading.new(cpu_s: found.sum { |pid| cpu_s(pid) }, waits: found.map { |pid| waits(pid) }.reduce({}, :merge))
    end

    # @return [Hash{Symbol => Float}] resident and proportional megabytes; the latter count shared pages once
    def memory_mb
      lines = pids.flat_map { |pid| lines_of("/proc/#{pid}/smaps_rollup") }
      { rss_mb: megabytes(lines, "Rss:"), pss_mb: megabytes(lines, "Pss:") }
    end

    # @param pid [Integer]
    # @return [Float] proportional megabytes of this process alone
    def self.pss_mb(pid)
      File.read("/proc/#{pid}/smaps_rollup")[/^Pss: +(\d+)/, 1].to_i / 1024.0
    rescue Errno::ENOENT, Errno::ESRCH
      0.0
    end

    # @return [Array<Integer>] the root and its descendants
    def pids
      children = Dir.children("/proc").grep(/\A\d+\z/).group_by { |pid| stat(pid)&.at(PPID).to_i }
      family = [@root_pid]
      family.each { |pid| family.concat((children[pid] || []).map(&:to_i)) }
    end

    private

    # Fields after the command's name, which may itself hold spaces and brackets.
    def stat(pid) = lines_of("/proc/#{pid}/stat").first&.rpartition(") ")&.last&.split

    def cpu_s(pid)
      fields = stat(pid)
      fields ? (fields[UTIME].to_i + fields[STIME].to_i) / TICKS_PER_S : 0.0
    end

    def waits(pid)
      Dir.glob("/proc/#{pid}/task/*/status").to_h do |path|
        line = lines_of(path).find { |text| text.start_with?("voluntary_ctxt_switches:") }
        [path, line.to_s[/\d+/].to_i]
      end
    end

    def megabytes(lines, name)
      (lines.select { |line| line.start_with?(name) }.sum { |line| line[/\d+/].to_i } / 1024.0).round(1)
    end

    # A process may end while it is being read.
    def lines_of(path)
      File.readlines(path)
    rescue Errno::ENOENT, Errno::ESRCH
      []
    end
  end
end
