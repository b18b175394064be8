# frozen_string_literal: true

# "digest" alone loads the class on first use, which fails in some of several threads at once.
require "digest/sha1"
require "json"
require "securerandom"
require "socket"

# A WebSocket client (RFC 6455) for tests, with handshake and text frames only.
class WebSocket
  # The server appends this to the key, RFC 6455 section 1.3.
  SALT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
  TIMEOUT_S = 20
  OPCODE_TEXT = 0x1
  OPCODE_PING = 0x9

  # The server refused or broke the protocol.
  class Refused < StandardError; end

  # @param port [Integer]
  # @param path [String]
  # @param protocol [String] the requested subprotocol
  # @param tls [OpenSSL::SSL::SSLContext, nil] encrypts the connection
  def initialize(port, path, protocol:, tls: nil)
    @socket = TCPSocket.new("127.0.0.1", port)
    @socket = OpenSSL::SSL::SSLSocket.new(@socket, tls).connect if tls
    key = SecureRandom.base64(16)
    host = "127.0.0.1:#{port}"
    @socket.write("GET #{path} HTTP/1.1\r\nHost: #{host}\r\nOrigin: #{tls ? "https" : "http"}://#{host}\r\n" \
                  "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
                  "Sec-WebSocket-Protocol: #{protocol}\r\nSec-WebSocket-Key: #{key}\r\n\r\n")
    check_handshake(Digest::SHA1.base64digest(key + SALT))
  end

  # Sends one text frame. RFC 6455 section 5.1 requires clients to mask every frame.
  def write(text)
    mask = SecureRandom.bytes(4)
    length = text.bytesize < 126 ? [0x80 | text.bytesize].pack("C") : [0x80 | 126, text.bytesize].pack("Cn")
    masked = text.bytes.each_with_index.map { |byte, index| byte ^ mask.getbyte(index % 4) }.pack("C*")
    @socket.write([0x80 | OPCODE_TEXT].pack("C"), length, mask, masked)
  end

  # @return [String] the next text frame
  def read
    loop do
      opcode, text = read_frame
      return text if opcode == OPCODE_TEXT
      raise Refused, "frame with opcode #{opcode}: #{text.inspect}" unless opcode == OPCODE_PING
    end
  end

  # @return [Hash] the next JSON message for which the block returns true
  def read_json
    loop do
      message = JSON.parse(read)
      return message if yield message
    end
  end

  def close = @socket.close

  private

  def check_handshake(accept)
    head = +""
    head << take(1) until head.end_with?("\r\n\r\n")
    raise Refused, head unless head.start_with?("HTTP/1.1 101") && head.include?(accept)
  end

  def read_frame
    first, second = take(2).bytes
    length = second & 0x7F
    length = take(2).unpack1("n") if length == 126
    [first & 0x0F, length.zero? ? "" : take(length)]
  end

  def readable?
    (@socket.respond_to?(:pending) && @socket.pending.positive?) || @socket.to_io.wait_readable(TIMEOUT_S)
  end

  def take(bytes)
    text = +""
    while text.bytesize < bytes
      raise Refused, "no frame within #{TIMEOUT_S} s" unless readable?
      text << @socket.readpartial(bytes - text.bytesize)
    end
    text
  end
end
