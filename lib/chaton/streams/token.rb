# frozen_string_literal: true

module Chaton
  module Streams
    # A byte in an inherited pipe, which only one of several forked processes gets.
    class Token
      def initialize
        @reader, writer = IO.pipe
        writer.write("t")
        writer.close
      end

      # @return [Boolean] whether this process got it
      def take
        @reader.read_nonblock(1, exception: false) == "t"
      rescue IOError, SystemCallError
        # The inherited pipe was closed: it is unknown whether another process has it.
        false
      end
    end
  end
end
