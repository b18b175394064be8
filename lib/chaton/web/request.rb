# frozen_string_literal: true

require "socket"

module Chaton
  module Native
    # The Ruby part of a request; the rest is native (`ext/chaton/src/web/request.rs`). It is the request's
    # `rack.hijack`.
    class Request
      # Full hijack: hands the connection over to the application.
      #
      # Of an encrypted connection the engine encrypts what the application writes to its end of a pair of sockets.
      #
      # @return [TCPSocket, UNIXSocket] also in `env["rack.hijack_io"]`
      # @raise [ClosedError] when the request already has its response
      def call
        fd, unread = hijack
        io = Request.socket(fd)
        io.sync = true
        # Bytes that arrived with the request, as from an early WebSocket client. They are in Ruby's buffer: code that
        # waits for the descriptor itself, as nio4r does, sees them with the next ones.
        io.ungetbyte(unread) unless unread.empty?
        env["rack.hijack_io"] = io
      end

      # @param fd [Integer] of a stream
      # @private
      def self.socket(fd)
        socket = TCPSocket.for_fd(fd)
        return socket unless socket.local_address.unix?

        socket.autoclose = false
        UNIXSocket.for_fd(fd)
      end

      # Certificates of clients that are kept parsed, about 10 KB each. With more clients the oldest is parsed again.
      CLIENTS_MAX = 1_000
      private_constant :CLIENTS_MAX
      @clients = {}

      # A certificate is parsed once, not once a request: that takes OpenSSL longer than Ruby needs for a short request,
      # and other threads wait meanwhile.
      #
      # @return [Hash{String => Object}] for the env
      def self.client(der)
        @clients[der] || begin
          @clients.shift if @clients.size >= CLIENTS_MAX
          @clients[der] = parse(der)
        end
      end

      def self.parse(der)
        require "openssl"
        certificate = OpenSSL::X509::Certificate.new(der)
        { "puma.peercert" => certificate, "SSL_CLIENT_VERIFY" => "SUCCESS",
          "SSL_CLIENT_S_DN" => certificate.subject.to_s(OpenSSL::X509::Name::RFC2253).freeze,
          "SSL_CLIENT_CERT" => certificate.to_pem.freeze }
      end
      private_class_method :parse

      private

      # Called by the extension for a client that has proved to have a certificate.
      #
      # @param der [String] the certificate, which an authority of the bind has signed
      def put_client_certificate(env, der) = env.update(Request.client(der))
    end
  end

  module Web
    # `rack.early_hints`: sends a 103 ahead of the response.
    class EarlyHints
      # A header that can be sent; others are left out.
      LINE = /\A[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\z/n
      private_constant :LINE

      def initialize(request)
        @request = request
      end

      # @param headers [Hash{String => String, Array<String>}] usually `link`
      # @raise [ResponseError] when the server cannot send them
      def call(headers)
        sendable = Hash.new { |lines, name| lines[name] = [] }
        headers.each do |name, values|
          lines = Array(values).flat_map { |value| value.to_s.split("\n") }
          sendable[name.to_s].concat(lines.select { |line| "#{name}: #{line}".b.match?(LINE) })
        end
        @request.interim(103, sendable) or
          raise ResponseError, "the early hints cannot be sent: #{headers.inspect[0, 200]}"
      end
    end
  end
end
