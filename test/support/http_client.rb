# frozen_string_literal: true

require "socket"

# A keep-alive HTTP/1.1 client on a raw socket that hides nothing: an answer
# that does not come is an exception, and it connects anew only after it was
# told `Connection: close`.
class HttpClient
  Response = Struct.new(:status, :headers, :body)
  TIMEOUT_S = 30

  def self.open(port, **options)
    client = new(port, **options)
    yield client
  ensure
    client&.close
  end

  def initialize(port, host: "127.0.0.1", timeout_s: TIMEOUT_S)
    @host = host
    @port = port
    @timeout_s = timeout_s
    @buffer = +""
  end

  # @return [Response]
  def get(path, headers: {})
    connect unless @socket
    lines = ["GET #{path} HTTP/1.1", "Host: #{@host}", *headers.map { |name, value| "#{name}: #{value}" }]
    @socket.write("#{lines.join("\r\n")}\r\n\r\n")
    response = read_response
    close if response.headers["connection"].to_s.casecmp?("close")
    response
  end

  def connect
    @socket = TCPSocket.new(@host, @port)
    @buffer = +""
    self
  end

  def close
    @socket&.close
    @socket = nil
  end

  private

  def read_response
    status, *fields = take_until("\r\n\r\n").split("\r\n")
    headers = fields.to_h { |field| field.split(/:\s*/, 2).then { |name, value| [name.downcase, value] } }
    Response.new(status.split[1].to_i, headers, body(headers))
  end

  def body(headers)
    return chunks if headers["transfer-encoding"] == "chunked"

    take(headers.fetch("content-length", 0).to_i)
  end

  def chunks
    text = +""
    while (size = take_until("\r\n").to_i(16)).positive?
      text << take(size)
      take(2)
    end
    take_until("\r\n")
    text
  end

  def take_until(mark)
    fill until @buffer.include?(mark)
    @buffer.slice!(0, @buffer.index(mark) + mark.size).delete_suffix(mark)
  end

  def take(bytes)
    fill until @buffer.bytesize >= bytes
    @buffer.slice!(0, bytes)
  end

  def fill
    raise Errno::ETIMEDOUT, "no answer within #{@timeout_s} s" unless @socket.wait_readable(@timeout_s)

    @buffer << @socket.readpartial(65_536)
  end
end

# Several keep-alive clients in a loop, in the background; counts what they saw.
class ClientLoad
  attr_reader :failures, :bodies

  def initialize(port, clients: 4, path: "/")
    @port = port
    @path = path
    @stop = false
    @lock = Mutex.new
    @failures = []
    @bodies = Hash.new(0)
    @threads = Array.new(clients) { Thread.new { run } }
  end

  # @return [Integer] requests answered with 200 so far
  def answered
    @lock.synchronize { @bodies.values.sum }
  end

  def stop
    @stop = true
    @threads.each(&:join)
    self
  end

  private

  def run
    client = HttpClient.new(@port)
    until @stop
      response = client.get(@path)
      note(response)
    end
  rescue SystemCallError, IOError => e
    @lock.synchronize { @failures << "#{e.class}: #{e.message}" }
    client.close
    retry unless @stop
  ensure
    client&.close
  end

  def note(response)
    @lock.synchronize do
      response.status == 200 ? @bodies[response.body] += 1 : @failures << "status #{response.status}"
    end
  end
end
