# frozen_string_literal: true

require "socket"
require_relative "http_client"

# One connection on which a test writes bytes as they are and reads answers
# one by one, or to the end.
class RawClient
  TIMEOUT_S = 20

  def self.open(...)
    client = new(...)
    yield client
  ensure
    client&.close
  end

  # Sends bytes and reads all that comes until the server closes.
  #
  # @return [String]
  def self.exchange(port, bytes)
    open(port) { |client| client.write(bytes).read_all }
  end

  # @param receive_bytes_max [Integer, nil] of the socket's buffer: a small one makes a slow reader slow
  def initialize(port, receive_bytes_max: nil)
    @socket = Socket.new(:INET, :STREAM)
    @socket.setsockopt(:SOCKET, :RCVBUF, receive_bytes_max) if receive_bytes_max
    @socket.connect(Addrinfo.tcp("127.0.0.1", port))
    @buffer = +"".b
  end

  # A server that refuses need not read to the end: what cannot be written is not.
  #
  # @return [self]
  def write(bytes)
    @socket.write(bytes)
    self
  rescue Errno::EPIPE, Errno::ECONNRESET
    self
  end

  # @return [self]
  def close_write
    @socket.shutdown(:WR)
    self
  rescue Errno::ENOTCONN
    self
  end

  # @return [String] what comes until the server closes
  def read_all
    nil while fill
    @buffer.slice!(0..)
  end

  # The next final answer; interim ones are passed over.
  #
  # @param head [Boolean] whether it answers a HEAD
  # @return [HttpClient::Response] headers by lower-case name; repeated ones joined by "\n"
  def read_answer(head: false)
    status, headers = read_head
    status, headers = read_head while status < 200
    HttpClient::Response.new(status, headers, head || [204, 304].include?(status) ? "" : read_body(headers))
  end

  # Takes no more than this off the socket, as a slow reader does; it stays to be read as part of the answer.
  #
  # @return [String] at most this many bytes, as soon as there are any
  def read_some(bytes)
    fill(bytes) or raise EOFError, "the server closed the connection"
    @buffer[-[bytes, @buffer.size].min..]
  end

  # Waits until the server has closed; nothing more may come.
  #
  # @return [Boolean]
  def closed_by_server?
    read_all.empty?
  end

  # Ends the connection; at once and with a reset when `reset`.
  def close(reset: false)
    @socket.setsockopt(Socket::Option.linger(true, 0)) if reset
    @socket.close
  rescue IOError
    nil
  end

  def to_io = @socket

  private

  def read_head
    status, *fields = take_until("\r\n\r\n").split("\r\n")
    headers = fields.each_with_object({}) do |field, all|
      name, value = field.split(/:\s*/, 2)
      all[name.downcase] = [all[name.downcase], value].compact.join("\n")
    end
    [status[%r{\AHTTP/1\.[01] (\d{3})}, 1].to_i, headers]
  end

  def read_body(headers)
    return chunks if headers["transfer-encoding"] == "chunked"
    headers.key?("content-length") ? take(headers["content-length"].to_i) : read_all
  end

  def chunks
    text = +"".b
    while (size = take_until("\r\n").to_i(16)).positive?
      text << take(size)
      take(2)
    end
    take_until("\r\n")
    text
  end

  def take_until(mark)
    until (at = @buffer.index(mark))
      fill or raise EOFError, "the server closed the connection after #{@buffer[0, 200].inspect}"
    end
    @buffer.slice!(0, at + mark.size).delete_suffix(mark)
  end

  def take(bytes)
    while @buffer.bytesize < bytes
      fill or raise EOFError, "the server closed the connection #{bytes - @buffer.bytesize} bytes too early"
    end
    @buffer.slice!(0, bytes)
  end

  # @return [Boolean] false at the end
  def fill(bytes_max = 65_536)
    raise Errno::ETIMEDOUT, "no answer within #{TIMEOUT_S} s" unless @socket.wait_readable(TIMEOUT_S)
    @buffer << @socket.readpartial(bytes_max)
    true
  rescue EOFError
    false
  end
end
