# frozen_string_literal: true

require_relative "connection"
require_relative "hpack"

module Crossings
  # A client of HTTP/2 that accepts nothing but what RFC 9113 allows.
  class ClientHttp2
    PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = *0..9
    END_STREAM = ACK = 0x1
    END_HEADERS = 0x4
    PADDED = 0x8
    CANCEL = 8
    FRAME_BYTES_MAX = 16_384
    WINDOW_BYTES = 65_535
    # RFC 9113 section 8.2.2
    OF_CONNECTION = %w[connection proxy-connection keep-alive transfer-encoding upgrade].freeze

    Stream = Struct.new(:verb, :answer, :body, :window, :ended, :reset, :left)

    def initialize(port, version, tls:, small: false)
      @connection = Connection.new(port, version, tls: tls, small: small)
      @scheme = version == "h2" ? "https" : "http"
      @hpack = Hpack.new
      @streams = {}
      @window = WINDOW_BYTES
      @stream_window = small ? 1_000 : WINDOW_BYTES
      @opened = !small
      @connection.write(PREFACE + frame(SETTINGS, 0, 0, [2, 0, 4, @stream_window].pack("nNnN")))
    end

    # @param headers [Hash]
    def request(method, target, headers = {})
      @id = (@streams.keys.last || -1) + 2
      fields = [[":method", method], [":scheme", @scheme], [":path", target], [":authority", "localhost"], *headers]
      fields = fields.map { |name, value| [name.downcase, value] }
      @streams[@id] = Stream.new(method, nil, +"".b, @stream_window)
      @connection.write(frame(HEADERS, END_HEADERS | END_STREAM, @id, Hpack.encode(fields)))
    end

    # @return [Answer, nil] nil if the server has refused the stream or gone away before it
    def read_head
      read_frame until stream.answer || stream.reset || gone?
      stream.answer
    end

    def begin_body
      read_frame until stream.body.size.positive? || stream.ended || stream.reset || gone?
    end

    def read_rest
      open_windows
      read_frame until stream.ended || stream.reset || gone?
      stream.answer.tap do |answer|
        answer.body = stream.body
        answer.ending = stream.ended ? :whole : :cut
        check_length(answer) if answer.ending == :whole
      end
    end

    # Leaves in the middle of the answer; the connection stays.
    def leave
      @connection.write(frame(RST_STREAM, 0, @id, [CANCEL].pack("N"))) unless stream.ended || stream.reset
      stream.left = true
    end

    def usable? = !@goaway && !gone?

    def problem_at_end = nil
    def close = @connection.close

    private

    def stream = @streams[@id]
    def gone? = @connection.ending

    def frame(type, flags, id, payload)
      [payload.bytesize >> 16, payload.bytesize & 0xFFFF, type, flags, id].pack("CnCCN") + payload.b
    end

    def open_windows
      return if @opened
      @opened = true
      # From now on each DATA frame gives back what it took; this gives back what came before.
      give(@id, WINDOW_BYTES)
      give(0, WINDOW_BYTES)
    end

    def give(id, bytes)
      return unless bytes.positive?
      id.zero? ? @window += bytes : @streams[id].window += bytes
      @connection.write(frame(WINDOW_UPDATE, 0, id, [bytes].pack("N")))
    end

    def read_frame
      head = @connection.take(9) or return
      high, low, type, flags, id = head.unpack("CnCCN")
      size = (high << 16) | low
      raise Malformed, "a frame of #{size} bytes" if size > FRAME_BYTES_MAX
      payload = @connection.take(size) or return
      raise Malformed, "frame #{type} inside of a head" if @block && (type != CONTINUATION || id != @block_id)
      handle(type, flags, id, payload)
    end

    def handle(type, flags, id, payload)
      case type
      when DATA then data(flags, id, payload)
      when HEADERS then begin_head(flags, id, payload)
      when CONTINUATION then continue_head(flags, payload)
      when RST_STREAM then of(id).reset = payload.unpack1("N")
      when SETTINGS then @connection.write(frame(SETTINGS, ACK, 0, "")) if flags & ACK == 0
      when PING then @connection.write(frame(PING, ACK, 0, payload)) if flags & ACK == 0
      when GOAWAY then go_away(*payload.unpack("NNa*"))
      when PUSH_PROMISE then raise Malformed, "a push, which was switched off"
      end
    end

    def go_away(last, code, reason)
      @goaway = last
      raise Malformed, "GOAWAY with error #{code} #{reason}" unless code.zero?
    end

    def of(id) = @streams[id] || raise(Malformed, "a frame of stream #{id}, which is unknown")

    # RFC 9113 section 5.1: nothing follows the end of a stream but WINDOW_UPDATE, PRIORITY and RST_STREAM.
    def open(id)
      one = of(id)
      raise Malformed, "a frame behind the end of stream #{id}" if one.ended || one.reset
      one
    end

    def data(flags, id, payload)
      one = open(id)
      check_data(one, flags, payload)
      take_windows(one, payload.bytesize)
      one.body << payload unless one.left
      one.ended = true if flags & END_STREAM != 0
      give(id, payload.bytesize) if @opened && !one.ended && !one.left
      give(0, payload.bytesize) if @opened || one.left
    end

    def check_data(one, flags, payload)
      raise Malformed, "DATA before HEADERS" unless one.answer
      raise Malformed, "padded DATA" if flags & PADDED != 0
      return if payload.empty? || one.answer.framing != :none
      raise Malformed, "a body for #{one.verb} #{one.answer.status}"
    end

    # RFC 9113 section 6.9
    def take_windows(one, size)
      @window -= size
      one.window -= size
      raise Malformed, "more DATA than the windows take" if @window.negative? || one.window.negative?
    end

    def begin_head(flags, id, payload)
      raise Malformed, "padded HEADERS" if flags & PADDED != 0
      @block = payload
      @block_id = id
      @block_ends = flags & END_STREAM != 0
      head if flags & END_HEADERS != 0
    end

    def continue_head(flags, payload)
      @block << payload
      head if flags & END_HEADERS != 0
    end

    def head
      one = open(@block_id)
      fields = @hpack.decode(@block)
      @block = nil
      check(fields)
      status = fields[0][1].to_i
      if status >= 200
        raise Malformed, "trailers, or a second head" if one.answer
        one.answer = Answer.new(status, fields.drop(1), fields.assoc("content-length") ? :length : :stream)
        one.answer.framing = :none if one.verb == "HEAD" || [204, 304].include?(status)
        one.answer.persistent = true
      end
      raise Malformed, "an interim head that ends its stream" if @block_ends && status < 200
      one.ended = @block_ends
    rescue Hpack::Malformed => e
      raise Malformed, e.message
    end

    # RFC 9113 sections 8.2 and 8.3
    def check(fields)
      pseudo, others = fields.partition { |name, _| name.start_with?(":") }
      right = pseudo in [[":status", /\A(?!101)[1-9]\d\d\z/]]
      raise Malformed, "the pseudo-headers #{pseudo}" unless right && fields[0] == pseudo[0]
      wrong = others.find do |name, value|
        !name.match?(/\A[!#$%&'*+.^_`|~0-9a-z-]+\z/) || OF_CONNECTION.include?(name) ||
          value.match?(/[\0\r\n]|\A[ \t]|[ \t]\z/n)
      end
      raise Malformed, "the header #{wrong.join(": ")}" if wrong
    end

    # RFC 9113 section 8.1.1
    def check_length(answer)
      length = answer["content-length"]
      return if length.nil? || answer.framing == :none || length.to_i == answer.body.bytesize
      raise Malformed, "content-length #{length} for #{answer.body.bytesize} bytes"
    end
  end
end
