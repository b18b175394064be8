# frozen_string_literal: true

require "socket"

# A connection on which a test writes raw bytes, and reads responses one by one or all bytes to the end.
class RawClient
  TIMEOUT_S = 20
  Response = Struct.new(:status, :headers, :body)

  def self.open(...)
    client = new(...)
    yield client
  ensure
    client&.close
  end

  # Sends bytes, and reads until the server closes the connection.
  #
  # @return [String]
  def self.exchange(port, bytes)
    open(port) { |client| client.write(bytes).read_all }
  end

  # @param receive_bytes_max [Integer, nil] size of the socket's buffer; a small one lets a slow reader block the server
  # @param tls [OpenSSL::SSL::SSLContext, nil] encrypts the connection
  def initialize(port, receive_bytes_max: nil, timeout_s: TIMEOUT_S, tls: nil, name: "localhost")
    @timeout_s = timeout_s
    @socket = Socket.new(:INET, :STREAM)
    @socket.setsockopt(:SOCKET, :RCVBUF, receive_bytes_max) if receive_bytes_max
    @socket.connect(Addrinfo.tcp("127.0.0.1", port))
    @socket = encrypt(@socket, tls, name) if tls
    @buffer = +"".b
  end

  # Ignores the error of a closed connection, because a server may refuse a request without reading it to the end.
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
    @socket.to_io.shutdown(:WR)
    self
  rescue Errno::ENOTCONN
    self
  end

  # @return [String] all bytes until the server closes the connection
  def read_all
    nil while fill
    @buffer.slice!(0..)
  end

  # Reads the next final response, and skips interim ones.
  #
  # @param head [Boolean] whether the request was a HEAD
  # @return [Response] headers by lower-case name; repeated ones are joined by "\n"
  def read_response(head: false)
    status, headers = read_head
    status, headers = read_head while status < 200
    Response.new(status, headers, head || [204, 304].include?(status) ? "" : read_body(headers))
  end

  # Receives at most this many bytes, like a slow reader. They remain part of the next response.
  #
  # @return [String] the bytes, as soon as there are any
  def read_some(bytes)
    fill(bytes) or raise EOFError, "the server closed the connection"
    @buffer[-[bytes, @buffer.size].min..]
  end

  # @return [String] the next bytes, as many as these
  def take(bytes)
    while @buffer.bytesize < bytes
      fill or raise EOFError, "the server closed the connection #{bytes - @buffer.bytesize} bytes too early"
    end
    @buffer.slice!(0, bytes)
  end

  # Waits until the server closes the connection.
  #
  # @return [Boolean] whether no more bytes came
  def closed_by_server?
    read_all.empty?
  end

  # @param reset [Boolean] whether to send a reset
  def close(reset: false)
    @socket.to_io.setsockopt(Socket::Option.linger(true, 0)) if reset
    @socket.close
  rescue IOError
    nil
  end

  def to_io = @socket

  private

  def encrypt(socket, context, name)
    OpenSSL::SSL::SSLSocket.new(socket, context).tap do |encrypted|
      encrypted.hostname = name if name
      encrypted.sync_close = true
      encrypted.connect
    end
  rescue OpenSSL::SSL::SSLError, SystemCallError
    socket.close
    raise
  end

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

  # Of an encrypted connection bytes may have arrived and be decrypted already.
  def readable?
    (@socket.respond_to?(:pending) && @socket.pending.positive?) || @socket.to_io.wait_readable(@timeout_s)
  end

  # @return [Boolean] false at the end
  def fill(bytes_max = 65_536)
    raise Errno::ETIMEDOUT, "no response within #{@timeout_s} s" unless readable?
    @buffer << @socket.readpartial(bytes_max)
    true
  rescue EOFError
    false
  end
end
