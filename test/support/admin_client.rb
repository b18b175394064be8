# frozen_string_literal: true

require "json"
require "socket"

# Asks the admin endpoint of a server, with a connection for each request.
class AdminClient
  TIMEOUT_S = 30
  Answer = Struct.new(:status, :headers, :body) do
    # @return [Hash{String=>Object}]
    def json = JSON.parse(body)

    # @return [String]
    def reasons = json.fetch("reasons").join("\n")
  end

  # @param address [String, Integer] path of a Unix socket, or a port
  def initialize(address)
    @address = address
  end

  # @param host [String, nil] nil: HTTP/1.0 without it
  # @return [Answer]
  def get(path, host: "localhost", method: "GET", headers: {})
    lines = ["#{method} #{path} HTTP/1.#{host ? 1 : 0}", "Connection: close", *("Host: #{host}" if host),
             *headers.map { |name, value| "#{name}: #{value}" }]
    head, body = exchange("#{lines.join("\r\n")}\r\n\r\n").split("\r\n\r\n", 2)
    status, *fields = head.split("\r\n")
    Answer.new(status[/\d{3}/].to_i, fields.to_h { |field| field.downcase.split(": ", 2) }, body)
  end

  # Sends bytes, and reads until the connection is closed.
  #
  # @return [String]
  def exchange(bytes)
    socket = @address.is_a?(Integer) ? TCPSocket.new("127.0.0.1", @address) : UNIXSocket.new(@address)
    socket.write(bytes)
    answer = +"".b
    loop do
      raise "no answer within #{TIMEOUT_S} s" unless socket.wait_readable(TIMEOUT_S)

      answer << socket.readpartial(65_536)
    end
  rescue EOFError
    answer
  ensure
    socket&.close
  end
end
