# frozen_string_literal: true

require_relative "../native_library"

module Chaton
  module Telemetry
    # Where lines go. A line is one `write`, so lines of several threads and processes never mix, and no lock is needed.
    # Standard output and error are written by Rust, which waits for no reader (`crates/core/src/log.rs`), except on a
    # system that has no server.
    class LogDevice
      def initialize(io)
        @io = io
        @io.sync = true if @io.respond_to?(:sync=)
        standard = @io.is_a?(IO) && @io.fileno.between?(1, 2)
        @descriptor = @io.fileno if standard && NativeLibrary.new.system?
      end

      # A reader that has gone must not stop the server.
      def write(lines)
        return @io.write(lines) unless @descriptor

        # Not before the first line: a process that executes itself again does not need it.
        require_relative "../native"
        Native.write_log(lines, @descriptor == 2)
      rescue IOError, SystemCallError
        nil
      end

      # Ruby's Logger wants these; the output is the process's.
      def close; end
      def reopen(*) = self

      # @return [IO] by which Rails knows whether it logs to the terminal already
      def dev = @io

      def terminal? = @io.respond_to?(:tty?) && @io.tty?
    end
  end
end
