# frozen_string_literal: true

require "etc"

# Reads the CPU time and the wake-ups of a process from /proc.
module CpuTime
  TICKS = Etc.sysconf(Etc::SC_CLK_TCK).to_f
  # A waiting process uses less than this share of one CPU.
  REST = 0.1

  module_function

  # @return [Float] seconds of CPU time
  def of(pid)
    fields = File.read("/proc/#{pid}/stat").rpartition(") ").last.split
    (fields[11].to_i + fields[12].to_i) / TICKS
  end

  # Measures a process for some time.
  #
  # @param seconds [Numeric]
  # @yieldparam share [Float] of one CPU
  def window(pid, seconds)
    before = of(pid)
    sleep seconds
    yield (of(pid) - before) / seconds
  end

  # @return [Hash{String=>Integer}] voluntary context switches of each thread by "name/tid"
  def sleeps(pid)
    Dir.glob("/proc/#{pid}/task/*").filter_map do |task|
      status = File.read(File.join(task, "status"))
      ["#{status[/^Name:\s+(.*)/, 1]}/#{File.basename(task)}", status[/^voluntary_ctxt_switches:\s+(\d+)/, 1].to_i]
    rescue Errno::ENOENT, Errno::ESRCH
      nil # the thread has ended
    end.to_h
  end
end
