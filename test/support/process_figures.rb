# frozen_string_literal: true

# Reads the memory, threads and descriptors of a process from /proc.
module ProcessFigures
  module_function

  # @return [Integer] KiB of memory in use
  def resident_kib(pid) = field(pid, "VmRSS")

  def threads(pid) = field(pid, "Threads")

  # @return [Integer] open descriptors
  def descriptors(pid) = Dir.children("/proc/#{pid}/fd").size

  # @return [Integer] those of them that are sockets
  def sockets(pid)
    Dir.glob("/proc/#{pid}/fd/*").count do |path|
      File.readlink(path).start_with?("socket:")
    rescue Errno::ENOENT
      false
    end
  end

  def field(pid, name) = File.read("/proc/#{pid}/status")[/^#{name}:\s+(\d+)/, 1].to_i
end
