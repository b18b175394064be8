# frozen_string_literal: true

require "tempfile"

module Bench
  # Measures how long a disk takes to make a write durable, which no durable store can undercut.
  module Disk
    BLOCK = ("x" * 4096).freeze
    WRITES = 200

    module_function

    # @param folder [String] on that disk
    # @return [Array<Float>] milliseconds of each write with fdatasync, the fastest first
    def sync_ms(folder)
      Tempfile.create("sync", folder) do |file|
        Array.new(WRITES) do
          before = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)
          file.syswrite(BLOCK)
          file.fdatasync
          Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond) - before
        end.sort
      end
    end
  end
end
