# frozen_string_literal: true

require "openssl"
require "socket"

module Crossings
  # The peer has broken the protocol.
  class Malformed < StandardError; end

  # What a client has got. `fields` has the lines of the head, in order, `framing` and `ending` are as in {Verdict}.
  Answer = Struct.new(:status, :fields, :framing, :ending, :body, :persistent) do
    def values(name) = fields.filter_map { |field, value| value if field.casecmp?(name) }
    def [](name) = values(name).first
  end

  # A client's socket: how the bytes come, and how they end.
  class Connection
    TIMEOUT_S = 30
    # A client that stalls takes little beforehand.
    STALLED_BYTES = 4096
    # The bind for a balancer, and the address and port that it tells.
    BALANCED = "127.0.0.2"
    BEHIND = ["203.0.113.7", 40_000].freeze
    PROXY = { "proxy1" => "PROXY TCP4 #{BEHIND[0]} 127.0.0.1 #{BEHIND[1]} 80\r\n",
              "proxy2" => ["\r\n\r\n\0\r\nQUIT\n", 0x21, 0x11, 12, *BEHIND[0].split(".").map(&:to_i), 127, 0, 0, 1,
                           BEHIND[1], 80].pack("a12CCnC8nn") }.freeze

    # @return [Symbol, nil] :closed or :torn (a reset, or TLS without close_notify) once nothing more comes
    attr_reader :ending

    def initialize(port, version, tls:, small: false)
      @socket = Socket.new(:INET, :STREAM)
      @socket.setsockopt(:SOCKET, :RCVBUF, STALLED_BYTES) if small
      @socket.connect(Addrinfo.tcp(PROXY[version] ? BALANCED : "127.0.0.1", port))
      @socket.setsockopt(:TCP, :NODELAY, true)
      @socket.write(PROXY[version]) if PROXY[version]
      encrypt(tls, version) if %w[https h2].include?(version)
      @buffer = +"".b
    end

    # A server that refuses or gives up may close before it has read all.
    def write(bytes)
      @socket.write(bytes)
    rescue Errno::EPIPE, Errno::ECONNRESET, OpenSSL::SSL::SSLError
      nil
    end

    # @return [String, nil] so many bytes; nil if the connection ends before
    def take(size)
      nil while @buffer.bytesize < size && fill
      @buffer.slice!(0, size) if @buffer.bytesize >= size
    end

    # @return [String, nil] what comes before the mark
    def take_until(mark)
      nil until (at = @buffer.index(mark)) || !fill
      @buffer.slice!(0, at + mark.size).delete_suffix(mark) if at
    end

    # @return [String] everything up to the end
    def rest
      nil while fill
      @buffer.slice!(0..)
    end

    # Waits for the first byte of what comes next.
    def arrived? = !@buffer.empty? || fill

    def close
      @socket.to_io.close
    rescue IOError
      nil
    end

    private

    def encrypt(context, version)
      context = context.call
      context.alpn_protocols = [version == "h2" ? "h2" : "http/1.1"]
      @socket = OpenSSL::SSL::SSLSocket.new(@socket, context)
      @socket.hostname = "localhost"
      @socket.sync_close = true
      @socket.connect
      raise Malformed, "ALPN chose #{@socket.alpn_protocol}" unless @socket.alpn_protocol == context.alpn_protocols[0]
    end

    def fill
      return false if @ending
      ready = (@socket.respond_to?(:pending) && @socket.pending.positive?) || @socket.to_io.wait_readable(TIMEOUT_S)
      raise Malformed, "nothing came within #{TIMEOUT_S} s" unless ready
      @buffer << @socket.readpartial(65_536)
      true
    rescue EOFError
      @ending = :closed
      false
    rescue Errno::ECONNRESET, OpenSSL::SSL::SSLError
      @ending = :torn
      false
    end
  end
end
