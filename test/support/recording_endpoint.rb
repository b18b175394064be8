# frozen_string_literal: true

require "json"
require "openssl"
require "socket"
require "stringio"
require "zlib"

# An HTTP server that records what instruments send, and answers each request with 200.
class RecordingEndpoint
  WAIT_S = 60

  # @return [Integer]
  attr_reader :port

  # @param tls [OpenSSL::SSL::SSLContext, nil]
  # @yield [line] what to answer
  # @yieldparam line [String] the request's first one
  # @yieldreturn [Object, nil] written as JSON
  def initialize(tls: nil, &answer)
    @tls = tls
    @answer = answer
    @server = TCPServer.new("127.0.0.1", 0)
    @port = @server.local_address.ip_port
    @seen = []
    @lock = Mutex.new
    @changed = ConditionVariable.new
    @threads = [Thread.new { accept }]
  end

  # Waits for a request.
  #
  # @param pattern [Regexp] of its first line and body
  # @return [String]
  def wait(pattern, timeout_s: WAIT_S)
    deadline = now_s + timeout_s
    @lock.synchronize do
      until (found = @seen.find { |text| text.match?(pattern) })
        left = deadline - now_s
        raise "not within #{timeout_s} s: #{pattern.inspect}; got\n#{shown}" if left <= 0

        @changed.wait(@lock, left)
      end
      found
    end
  end

  # @return [Integer] how many requests match
  def count(pattern) = @lock.synchronize { @seen.count { |text| text.match?(pattern) } }

  def close
    @server.close
    @threads.each { |thread| thread.kill.join }
  end

  private

  HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
  private_constant :HEAD

  def shown = @seen.map { |text| text[0, 300] }.join("\n")

  def accept
    loop do
      socket = @server.accept
      @threads << Thread.new { serve(socket) }
    end
  rescue IOError
    nil
  end

  def serve(socket)
    socket = OpenSSL::SSL::SSLSocket.new(socket, @tls).tap(&:accept) if @tls
    while (line = socket.gets)
      body = body_of(socket, headers_of(socket))
      @lock.synchronize { (@seen << "#{line.chomp} #{body}") && @changed.broadcast }
      text = JSON.generate(@answer&.call(line) || {})
      socket.write(format(HEAD, text.bytesize), text)
    end
  rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
    nil
  end

  def headers_of(socket)
    headers = {}
    until (line = socket.gets.to_s.chomp).empty?
      name, value = line.split(/: */, 2)
      headers[name.downcase] = value
    end
    headers
  end

  # @return [String] unpacked
  def body_of(socket, headers)
    body = headers["transfer-encoding"] == "chunked" ? chunks(socket) : socket.read(headers["content-length"].to_i)
    case headers["content-encoding"]
    when "gzip" then Zlib::GzipReader.new(StringIO.new(body)).read
    when "deflate" then Zlib::Inflate.inflate(body)
    else body
    end.force_encoding("UTF-8").scrub
  end

  def chunks(socket)
    body = +"".b
    while (size = socket.gets.to_i(16)).positive?
      body << socket.read(size)
      socket.gets
    end
    socket.gets
    body
  end

  def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
