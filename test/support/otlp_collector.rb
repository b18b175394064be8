# frozen_string_literal: true

require "socket"

# A collector of traces that records what it gets over OTLP/HTTP in protobuf, decoded by the field numbers of the
# standard.
class OtlpCollector
  WAIT_S = 60
  BACKLOG = 64
  # Field numbers of a span's texts and bytes.
  SPAN = { trace_id: 1, span_id: 2, trace_state: 3, parent_id: 4, name: 5 }.freeze
  KINDS = { 2 => :server, 4 => :producer, 5 => :consumer }.freeze
  # Answers with this status.
  REPLY = "HTTP/1.1 %d Whatever\r\nContent-Length: 0\r\n\r\n"

  Span = Struct.new(:trace_id, :span_id, :trace_state, :parent_id, :name, :kind, :start_ns, :end_ns, :attributes,
                    :links, :status, :flags, :resource, keyword_init: true) do
    # @return [Object] an attribute's value
    def [](key) = key.is_a?(String) ? attributes[key] : super
  end

  # @return [Integer]
  attr_reader :port
  # @return [Array<Hash{String=>String}>] headers of each request, names in small letters
  attr_reader :requests

  # @param status [Integer] of its answers
  # @param away [Boolean] whether connections are refused until {#arrive}; the port is held
  # @param mute [Boolean] whether connections are accepted and never read
  # @param tls [OpenSSL::SSL::SSLContext, nil]
  def initialize(status: 200, away: false, mute: false, tls: nil)
    @tls = tls
    @server = Socket.new(:INET, :STREAM)
    @server.bind(Addrinfo.tcp("127.0.0.1", 0))
    @port = @server.local_address.ip_port
    @status = status
    @spans = []
    @requests = []
    @sockets = []
    @lock = Mutex.new
    @changed = ConditionVariable.new
    @threads = []
    @server.listen(BACKLOG) unless away
    @threads << Thread.new { accept } unless away || mute
  end

  # Begins to accept.
  def arrive
    @server.listen(BACKLOG)
    @threads << Thread.new { accept }
  end

  def url = @tls ? "https://localhost:#{@port}" : "http://127.0.0.1:#{@port}"

  # @return [Array<Span>] so far
  def spans = @lock.synchronize { @spans.dup }

  # Waits until the block is true of the spans.
  #
  # @return [Array<Span>]
  def wait(what, timeout_s: WAIT_S)
    deadline = now_s + timeout_s
    @lock.synchronize do
      until yield(@spans)
        left = deadline - now_s
        raise "not within #{timeout_s} s: #{what}; got #{@spans.map(&:name)}" if left <= 0

        @changed.wait(@lock, left)
      end
      @spans.dup
    end
  end

  def close
    @server.close
    @lock.synchronize { @sockets.each(&:close) }
    @threads.each { |thread| thread.kill.join }
  end

  private

  def accept
    loop do
      socket, = @server.accept
      @lock.synchronize { @sockets << socket }
      @threads << Thread.new { serve(socket) }
    end
  rescue IOError
    nil
  end

  def serve(socket)
    socket = OpenSSL::SSL::SSLSocket.new(socket, @tls).accept if @tls
    while socket.gets
      headers = {}
      until (line = socket.gets.chomp).empty?
        name, value = line.split(": ", 2)
        headers[name.downcase] = value
      end
      record(headers, body_of(socket, headers))
      socket.write(format(REPLY, @status))
    end
  rescue IOError, SystemCallError
    nil
  rescue StandardError => e
    # The client does not know the authority.
    raise unless @tls && e.is_a?(OpenSSL::SSL::SSLError)
  end

  def body_of(socket, headers)
    return socket.read(headers.fetch("content-length").to_i) unless headers["transfer-encoding"] == "chunked"

    body = +"".b
    while (size = socket.gets.to_i(16)).positive?
      body << socket.read(size)
      socket.gets
    end
    socket.gets
    body
  end

  def record(headers, body)
    found = @status == 200 ? decode(body) : []
    @lock.synchronize do
      @requests << headers
      @spans.concat(found)
      @changed.broadcast
    end
  end

  def decode(body)
    fields(body)[1].flat_map do |resource_spans|
      message = fields(resource_spans)
      resource = attributes(fields(message[1].first)[1])
      message[2].flat_map { |scope| fields(scope)[2].map { |span| span(fields(span), resource) } }
    end
  end

  def span(message, resource)
    texts = SPAN.transform_values { |number| message[number].first.to_s }
    ids = texts.slice(:trace_id, :span_id, :parent_id).transform_values { |bytes| bytes.unpack1("H*") }
    status = message[15].first
    Span.new(**texts, **ids, name: texts[:name].dup.force_encoding("UTF-8"), kind: KINDS.fetch(message[6].first),
                             start_ns: message[7].first, end_ns: message[8].first,
                             attributes: attributes(message[9]), status: status && fields(status)[3].first,
                             links: message[13].map { |link| fields(link)[2].first.unpack1("H*") },
                             flags: message[16].first, resource: resource)
  end

  def attributes(pairs)
    pairs.to_h do |pair|
      key, value = fields(pair).values_at(1, 2).map(&:first)
      number, found = fields(value).first
      found = found.first
      found = [found].pack("Q").unpack1("D") if number == 4
      [key, found.is_a?(String) ? found.dup.force_encoding("UTF-8") : found]
    end
  end

  # The fields of a message by their numbers.
  def fields(bytes)
    found = Hash.new { |hash, number| hash[number] = [] }
    at = 0
    while at < bytes.bytesize
      tag, at = varint(bytes, at)
      value, at = value(bytes, at, tag & 7)
      found[tag >> 3] << value
    end
    found
  end

  def value(bytes, at, type)
    case type
    when 0 then varint(bytes, at)
    when 1 then [bytes.byteslice(at, 8).unpack1("Q<"), at + 8]
    when 2
      size, at = varint(bytes, at)
      [bytes.byteslice(at, size), at + size]
    when 5 then [bytes.byteslice(at, 4).unpack1("L<"), at + 4]
    else raise "wire type #{type}"
    end
  end

  def varint(bytes, at)
    number = shift = 0
    loop do
      byte = bytes.getbyte(at)
      at += 1
      number |= (byte & 0x7f) << shift
      return [number, at] if byte < 0x80

      shift += 7
    end
  end

  def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
