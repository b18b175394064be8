# frozen_string_literal: true

require "socket"

module Chaton
  module Native
    # The Ruby half of a request in hand; the other half is native
    # (`ext/chaton/src/web/request.rs`). It is the request's `rack.hijack`.
    class Request
      # Full hijack: the connection belongs to the application from now on.
      #
      # @return [TCPSocket, UNIXSocket] also in `env["rack.hijack_io"]`
      # @raise [ClosedError] when the request was already answered
      def call
        fd, unread = hijack
        io = BasicSocket.for_fd(fd)
        io.sync = true
        # Bytes that came with the request, as of an impatient WebSocket client.
        io.ungetbyte(unread) unless unread.empty?
        env["rack.hijack_io"] = io
      end
    end
  end

  module Web
    # `rack.early_hints`: sends a 103 ahead of the response.
    class EarlyHints
      # @param request [Native::Request]
      def initialize(request)
        @request = request
      end

      # @param headers [Hash{String => String, Array<String>}] usually `link`
      # @return [void]
      def call(headers)
        head = +"HTTP/1.1 103 Early Hints\r\n"
        headers.each do |name, values|
          Array(values).flat_map { |value| value.to_s.split("\n") }.each do |value|
            line = "#{name}: #{value}"
            next if line.match?(/[\r\n\0]/)

            head << line << "\r\n"
          end
        end
        @request.interim(head << "\r\n")
      end
    end
  end
end
