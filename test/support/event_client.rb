# frozen_string_literal: true

require_relative "raw_client"

# A client of an event stream, as a browser's EventSource: it keeps the last id and comes back with it.
class EventClient
  Event = Struct.new(:id, :type, :data)

  attr_reader :retry_ms, :head
  attr_accessor :last_id

  # @param port [Integer]
  # @param path [String]
  # @param headers [Hash{String=>String}]
  # @param options [Hash{Symbol=>Object}] of {RawClient}
  def initialize(port, path, headers: {}, **options)
    @port = port
    @path = path
    @headers = headers
    @options = options
  end

  # Connects, or connects again with the id of the last event.
  #
  # @return [self]
  def connect
    @buffer = +"".b
    @client = RawClient.new(@port, **@options)
    @client.write(request)
    @head = @client.send(:read_head)
    self
  end

  # Connects until that works.
  #
  # @return [self]
  def connect_again
    close
    sleep((@retry_ms || 0) / 1000.0)
    connect
  rescue SystemCallError, EOFError
    retry
  end

  # @return [Event, nil] the next one; nil when the stream has ended
  def next
    loop do
      block = take_block or return
      event = parse(block)
      return event if event
    end
  end

  # @return [Array<String>] the data of the next events
  def take(count) = Array.new(count) { self.next&.data }

  # @return [String, nil] the bytes of the next chunk; nil at the end
  def chunk
    size = @client.send(:take_until, "\r\n").to_i(16)
    bytes = @client.take(size)
    @client.take(2)
    bytes unless size.zero?
  rescue EOFError, Errno::ECONNRESET
    nil
  end

  # @return [String] of a response that is no stream
  def body = @client.send(:read_body, @head.last)

  def close(...) = @client.close(...)

  private

  def request
    id = @last_id && { "Last-Event-ID" => @last_id }
    lines = { "Host" => "localhost", "Accept" => "text/event-stream", **@headers, **id.to_h }
    "GET #{@path} HTTP/1.1\r\n#{lines.map { |line| "#{line.join(": ")}\r\n" }.join}\r\n"
  end

  def take_block
    until (at = @buffer.index("\n\n"))
      @buffer << (chunk or return)
    end
    @buffer.slice!(0, at + 2)
  end

  # @return [Event, nil] nil for comments and blocks without data
  def parse(block)
    lines = block.lines(chomp: true).reject { |line| line.empty? || line.start_with?(":") }
    fields = lines.map { |line| line.split(/: ?/, 2) }
    fields.each do |name, value|
      @last_id = value if name == "id"
      @retry_ms = value.to_i if name == "retry"
    end
    data = fields.filter_map { |name, value| value if name == "data" }
    Event.new(@last_id, fields.to_h["event"] || "message", data.join("\n").force_encoding("UTF-8")) if data.any?
  end
end
