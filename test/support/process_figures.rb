# frozen_string_literal: true

# Reads the memory, threads and descriptors of a process from /proc.
module ProcessFigures
  module_function

  # @return [Integer] KiB of memory in use
  def resident_kib(pid) = field(pid, "VmRSS")

  def threads(pid) = field(pid, "Threads")

  # @return [Integer] open descriptors
  def descriptors(pid) = Dir.children("/proc/#{pid}/fd").size

  def field(pid, name) = File.read("/proc/#{pid}/status")[/^#{name}:\s+(\d+)/, 1].to_i
end
