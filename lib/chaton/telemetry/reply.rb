# frozen_string_literal: true

require "json"
require "socket"

module Chaton
  module Telemetry
    # Replies to a question of `chaton profile`, `chaton top` or the dashboard, which listens on a Unix
    # socket: a line of JSON, then a body of the announced length.
    class Reply
      # How long a write may block.
      WRITE_S = 10.0

      def initialize(path, log:)
        @path = path
        @log = log
      end

      # Sends the reply and closes the socket. It is not an error if who asked has ended.
      def deliver(header, body = "")
        socket = connect
        write(socket, "#{JSON.generate({ **header, bytes: body.bytesize })}\n")
        write(socket, body)
        true
      rescue SystemCallError, IOError, ArgumentError => e
        @log.debug("a reply was not received", path: @path, reason: e.message)
        false
      ensure
        socket&.close
      end

      private

      # A blocking connect would wait without a limit for a listener that does not accept.
      def connect
        socket = Socket.new(:UNIX, :STREAM)
        socket.connect_nonblock(Socket.sockaddr_un(@path))
        socket
      rescue SystemCallError, ArgumentError
        socket&.close
        raise
      end

      def write(socket, bytes)
        deadline = now_s + WRITE_S
        sent = 0
        while sent < bytes.bytesize
          count = socket.write_nonblock(bytes.byteslice(sent..), exception: false)
          next sent += count unless count == :wait_writable

          raise IOError, "it reads too slowly" unless socket.wait_writable([deadline - now_s, 0].max)
        end
      end

      def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
