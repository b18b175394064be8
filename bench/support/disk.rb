# frozen_string_literal: true

require "tempfile"

module Bench
  # How long a disk takes to keep something: what a durable store cannot be faster than.
  module Disk
    BLOCK = ("x" * 4096).freeze
    WRITES = 200

    module_function

    # @param folder [String] on that disk
    # @return [Array<Float>] milliseconds that each of many writes with fdatasync took, the fastest first
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
