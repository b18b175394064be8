# frozen_string_literal: true

require "openssl"
require "socket"

module Bench
  module Live
    # Thousands of clients over TLS in this process, which ask for stream 0 and read no more than its head.
    class TlsClients
      # Handshakes at once.
      THREADS = 4
      REQUEST = "GET /s/0 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"

      # @param port [Integer]
      # @param count [Integer]
      def initialize(port, count)
        @port = port
        @context = OpenSSL::SSL::SSLContext.new
        left = Queue.new.tap { |queue| count.times { queue << true } }.tap(&:close)
        @sockets = Array.new(THREADS) { Thread.new { open_while { left.pop } } }.flat_map(&:value)
      end

      # @return [Hash{Symbol => Integer}]
      def read(settle_s:)
        sleep settle_s
        { open: @sockets.size }
      end

      def close = @sockets.each(&:close)

      private

      def open_while
        sockets = []
        sockets << open_one while yield
        sockets
      end

      def open_one
        socket = OpenSSL::SSL::SSLSocket.new(TCPSocket.new("127.0.0.1", @port), @context)
        socket.sync_close = true
        socket.connect
        socket.write(REQUEST)
        head = socket.gets("\r\n\r\n")
        raise "a stream was not opened: #{head.inspect}" unless head&.start_with?("HTTP/1.1 200 ")

        socket
      end
    end
  end
end
