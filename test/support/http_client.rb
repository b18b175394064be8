# frozen_string_literal: true

require_relative "raw_client"

# A keep-alive HTTP/1.1 client that hides no error: a missing response is an exception, and it only reconnects after
# `Connection: close`.
class HttpClient
  TIMEOUT_S = 30

  def self.open(port, **options)
    client = new(port, **options)
    yield client
  ensure
    client&.close
  end

  # @param options [Hash] of {RawClient#initialize}
  def initialize(port, timeout_s: TIMEOUT_S, **options)
    @port = port
    @options = { timeout_s: timeout_s, **options }
  end

  # @return [RawClient::Response]
  def get(path, headers: {})
    connect unless @connection
    lines = ["GET #{path} HTTP/1.1", "Host: 127.0.0.1", *headers.map { |name, value| "#{name}: #{value}" }]
    response = @connection.write("#{lines.join("\r\n")}\r\n\r\n").read_response
    close if response.headers["connection"].to_s.casecmp?("close")
    response
  end

  def connect
    @connection = RawClient.new(@port, **@options)
    self
  end

  def close
    @connection&.close
    @connection = nil
  end
end

# Keep-alive clients that send requests in background threads, and count the responses.
class ClientLoad
  attr_reader :failures, :bodies

  # @param options [Hash] of {RawClient#initialize}
  def initialize(port, clients: 4, path: "/", **options)
    @port = port
    @options = options
    @path = path
    @stop = false
    @lock = Mutex.new
    @failures = []
    @bodies = Hash.new(0)
    @threads = Array.new(clients) { Thread.new { run } }
  end

  # @return [Integer] responses with status 200 so far
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
    client = HttpClient.new(@port, **@options)
    note(client.get(@path)) until @stop
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
