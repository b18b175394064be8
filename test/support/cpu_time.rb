# frozen_string_literal: true

require "etc"

# CPU time and wake-ups of a process, from /proc.
module CpuTime
  TICKS = Etc.sysconf(Etc::SC_CLK_TCK).to_f
  # The share of one CPU that a process which waits stays below.
  REST = 0.1

  module_function

  # @return [Float] seconds of CPU that a process has used
  def of(pid)
    fields = File.read("/proc/#{pid}/stat").rpartition(") ").last.split
    (fields[11].to_i + fields[12].to_i) / TICKS
  end

  # Looks at a process for some time.
  #
  # @param seconds [Numeric]
  # @yieldparam share [Float] of one CPU
  def window(pid, seconds)
    before = of(pid)
    sleep seconds
    yield (of(pid) - before) / seconds
  end

  # @return [Hash{String=>Integer}] how often each thread fell asleep by itself so far, under "name/tid"
  def sleeps(pid)
    Dir.glob("/proc/#{pid}/task/*").filter_map do |task|
      status = File.read(File.join(task, "status"))
      ["#{status[/^Name:\s+(.*)/, 1]}/#{File.basename(task)}", status[/^voluntary_ctxt_switches:\s+(\d+)/, 1].to_i]
    rescue Errno::ENOENT, Errno::ESRCH
      nil # it has ended meanwhile
    end.to_h
  end
end
