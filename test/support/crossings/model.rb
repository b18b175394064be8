# frozen_string_literal: true

require_relative "connection"
require_relative "factors"

module Crossings
  # What the answer to a case must be.
  #   headers     what a header may be, by name; nil: it is absent
  #   framing     :none, :length, :chunked, :close, or :stream, which END_STREAM ends
  #   ending      :whole, :cut, or :unseen for a cut that cannot be shown
  #   persistent  whether the connection is announced to go on; nil: either
  #   closes      how often the application's body is closed
  #   logged      the status in the access log; nil: the request is no longer the server's
  Verdict = Struct.new(:status, :headers, :framing, :text, :ending, :persistent, :closes, :logged, keyword_init: true)

  # The rules of RFC 9110 (semantics), 9112 (HTTP/1), 9113 (HTTP/2) and of Rack for one case.
  class Model
    # How the bodies of the application are sent.
    #   length: its size is known. coded: it is compressed where that is on. type: its Content-Type.
    PLAIN = { status: 200, type: "text/plain", tag: ETAG }.freeze
    KINDS = {
      "array" => { **PLAIN, length: true, coded: true },
      "each" => { **PLAIN, coded: true },
      # By `each`, with a Content-Length of the application.
      "sized" => { **PLAIN, length: true, coded: true },
      "call" => { **PLAIN, coded: true },
      "path" => { **PLAIN, length: true },
      # What buffers a compressed stream between here and the browser would hold events back.
      "events" => { **PLAIN, type: "text/event-stream" },
      "partial" => { **PLAIN, closes_connection: true },
      # Over HTTP/2 the callable of a partial hijack gets the stream of a body.
      "stream" => { **PLAIN, coded: true },
      # The application writes the head, too.
      "full" => { status: 200, length: true, closes_connection: true },
      "upgrade" => { status: 101, closes_connection: true },
      "switch" => { status: 101, closes_connection: true },
      "required" => { status: 426, type: "text/plain", length: true, text: "upgrade\n" },
      "empty" => { status: 204, bodyless: true },
      "unchanged" => { status: 304, tag: ETAG, bodyless: true },
      "error" => { status: 500, type: "text/plain; charset=utf-8", length: true, text: "Internal Server Error\n" },
      # The server sends the file, so it answers what is asked of it: RFC 9110 sections 14.2 and 13.2.2. Ranges and
      # conditions of other bodies are the application's business (section 13.2.1).
      "part" => { **PLAIN, status: 206, length: true, range: RANGE },
      "same" => { **PLAIN, status: 304, bodyless: true }
    }.freeze
    OF_FILE = { "range" => "part", "condition" => "same" }.freeze
    LOOPBACK = "127.0.0.1"

    # @return [Verdict]
    def self.expected(one) = new(one).verdict

    def initialize(one)
      @one = one
      @name = name
      @kind = KINDS.fetch(@name)
      # RFC 9110 section 12.5.3: gzip only where the client takes it, and then everywhere where it may be.
      @varies = @kind[:coded] && one.compress?
      @coded = @varies && one.gzip?
    end

    def verdict
      Verdict.new(status: @kind[:status], headers: headers, framing: framing, text: text, ending: ending,
                  persistent: persistent, closes: closes, logged: @name == "full" ? nil : @kind[:status])
    end

    private

    def name
      return "error" if @one.failure == "before"
      return OF_FILE.fetch(@one.ask, "path") if @one.given == "path"
      @one.given == "partial" && @one.http2? ? "stream" : @one.given
    end

    def text
      whole = TEXTS.fetch(@one.size)
      whole = "ping\n#{whole}" if @kind[:status] == 101
      @kind[:text] || (@kind[:range] ? whole[@kind[:range]] : whole)
    end

    # The server knows the length of the whole coded body only where it has all of it at once.
    def length? = @kind[:length] && !(@coded && @name == "sized")

    # RFC 9112 section 6: exactly one. RFC 9113 section 8.1: END_STREAM, beside which the length may be said.
    def framing
      return :close if @kind[:status] == 101
      return :none if @one.head? || @kind[:bodyless]
      return :length if length?
      return :stream if @one.http2?
      @kind[:closes_connection] || @one.version == "http10" ? :close : :chunked
    end

    # A body that the application has broken off must not look whole (RFC 9112 section 8, RFC 9113 section 8.1). Where
    # the close of the connection ends the body, nothing tells.
    def ending
      return :whole unless %w[first middle].include?(@one.failure) && @one.runs?
      framing == :close ? :unseen : :cut
    end

    # RFC 9112 section 9.3. A worker that is being replaced closes connections as it likes.
    def persistent
      return true if @one.http2?
      return false if framing == :close || @kind[:closes_connection]
      # A head that has gone out already has not announced that the body would break off.
      @one.restart? || ending == :cut ? nil : true
    end

    # Rack: the server calls `close` once on each body that has it.
    def closes
      return 0 if @name == "error" || (@name == "array" && @one.failure != "close")
      # The application has failed before it gave its body.
      @name == "full" && ending != :whole ? 0 : 1
    end

    def headers
      return {} if @name == "full"
      # 304 has no use for Content-Type (RFC 9110 section 15.4.5).
      types = @kind[:status] == 304 ? [@kind[:type], nil] : [@kind[:type]]
      peer = Connection::PROXY.key?(@one.version) ? Connection::BEHIND[0] : LOOPBACK
      { "content-type" => types, "x-remote" => [(peer unless @name == "error")], "content-range" => [content_range],
        "upgrade" => [protocol], **codings, **length_of_head }
    end

    # RFC 9110 section 14.4
    def content_range
      "bytes #{@kind[:range].min}-#{@kind[:range].max}/#{@one.size}" if @kind[:range]
    end

    # RFC 9110 section 7.8
    def protocol = ("echo" if [101, 426].include?(@kind[:status]) && !@one.http2?)

    # RFC 9110 sections 8.4, 8.8.3, 12.5.5: who might get another coding is told so, and coded bytes have a weak tag.
    def codings
      plain = { "content-encoding" => [nil], "vary" => [("Accept-Encoding" if @varies)], "etag" => [@kind[:tag]] }
      return plain unless @coded
      coded = { **plain, "content-encoding" => ["gzip"], "etag" => ["W/#{@kind[:tag]}"] }
      # HEAD may leave out what is known only once there is a body (section 9.3.2).
      @one.head? && !length_known? ? plain.merge(coded) { |_, left, right| left | right } : coded
    end

    def length_known? = %w[array sized].include?(@name)

    # RFC 9110 section 8.6: what GET would have. That of a coded body may be left out.
    def length_of_head
      return {} unless @one.head? && @kind[:length]
      { "content-length" => [@coded ? nil : text.bytesize.to_s] }
    end
  end
end
