# frozen_string_literal: true

require "chaton/errors"

module Chaton
  module Web
    # The stream that a streaming body (Rack 3, responds to `call`) writes to and reads from, and over HTTP/2 a partial
    # hijack, too. It may be closed later, from another thread.
    class Stream
      # @param request [Native::Request] detached, so that only the stream responds
      # @param input [#read] the request's `rack.input`
      def initialize(request, input)
        @request = request
        @input = input
        @closed = false
        @closing = Mutex.new
      end

      # @return [String, nil]
      def read(length = nil, buffer = nil) = @input.read(length, buffer)

      # Sends the chunks; waits while too many bytes written before have not been sent.
      #
      # @param chunks [Array<String>]
      # @return [Integer] bytes written
      # @raise [IOError] when the stream is closed
      # @raise [ClientGone] when the client has disconnected
      def write(*chunks)
        raise IOError, "closed stream" if @closed

        chunks.sum { |chunk| @request.write(chunk.to_s) }
      end

      # @return [self]
      def <<(chunk)
        write(chunk)
        self
      end

      # Rack 2 demands it of a hijacked connection. It waits as {#write} does.
      #
      # @return [Integer] bytes written
      def write_nonblock(chunk, exception: true) = write(chunk) # rubocop:disable Lint/UnusedMethodArgument

      # Rack 2 demands it of a hijacked connection. It reads the request's body.
      #
      # @return [String, nil] nil at the end, without `exception`
      # @raise [EOFError] at the end
      def read_nonblock(length, buffer = nil, exception: true)
        read(length, buffer) || (exception ? raise(EOFError, "end of file reached") : nil)
      end

      # Writes are not buffered.
      #
      # @return [self]
      def flush = self

      # @return [nil]
      def close_read = nil

      # Ends the response.
      #
      # @return [nil]
      def close(complete: true)
        @closing.synchronize do
          return if @closed

          @closed = true
          @request.end(complete)
        end
        nil
      end
      alias close_write close

      def closed? = @closed
    end
  end
end
