# frozen_string_literal: true

module Chaton
  module Streams
    # Something that only one of several processes gets, whichever comes first: a byte in a pipe that they inherit.
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
        # Somebody closed what a process inherits: nobody knows who has it.
        false
      end
    end
  end
end
