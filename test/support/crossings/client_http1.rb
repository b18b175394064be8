# frozen_string_literal: true

require_relative "connection"

module Crossings
  # A client of HTTP/1.0 and 1.1 that accepts nothing but what RFC 9112 allows.
  class ClientHttp1
    STATUS_LINE = %r{\AHTTP/1\.([01]) ([1-9]\d\d) [\t -~]*\z}
    # RFC 9110 section 5.5: no whitespace around, no control byte but the tab.
    FIELD = /\A([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?)[ \t]*\z/n
    CHUNK_SIZE = /\A\h{1,8}\z/

    def initialize(port, version, tls:, small: false)
      @connection = Connection.new(port, version, tls: tls, small: small)
      @tls = version == "https"
      @version = version == "http10" ? "1.0" : "1.1"
    end

    # @param headers [Hash]
    def request(method, target, headers = {})
      @method = method
      headers = { "Host" => "localhost", **headers }
      headers["Connection"] ||= "keep-alive" if @version == "1.0"
      lines = headers.map { |name, value| "#{name}: #{value}\r\n" }
      @connection.write("#{method} #{target} HTTP/#{@version}\r\n#{lines.join}\r\n")
    end

    # Reads the head of the final answer.
    #
    # @return [Answer, nil] nil if the connection ended without any byte
    def read_head
      return unless @connection.arrived?
      loop do
        text = @connection.take_until("\r\n\r\n") or raise Malformed, "the head broke off"
        @answer = parse(text)
        # No interim answers for HTTP/1.0 (RFC 9110 section 15.2).
        raise Malformed, "#{@answer.status} for HTTP/1.0" if @answer.status < 200 && @version == "1.0"
        break if @answer.status >= 200 || @answer.status == 101
      end
      @answer.framing = framing
      @answer.persistent = persistent?
      @answer
    end

    # Waits until some of the body has come.
    def begin_body = @answer.framing == :none || @connection.arrived?

    # @return [Answer] with the whole body, or what came of it
    def read_rest
      @answer.ending = :whole
      @answer.body = case @answer.framing
                     when :none then +""
                     when :length then exactly(Integer(@answer["content-length"], 10))
                     when :chunked then chunks
                     else until_close
                     end
      @answer
    end

    # Says a line on a connection that has switched.
    def say(text) = @connection.write(text)

    # Leaves in the middle of the answer.
    def leave = @connection.close

    # @return [Boolean] whether another request may follow on this connection
    def usable? = @answer.persistent && @answer.ending == :whole

    # Waits for the end of a connection that the server has announced to close.
    #
    # @return [String, nil] what is wrong with it
    def problem_at_end
      rest = @connection.rest
      return "#{rest.bytesize} bytes behind the answer: #{rest[0, 60].inspect}" unless rest.empty?
      # RFC 9112 section 9.8: a whole answer ends with close_notify, a cut one must not.
      torn = @connection.ending == :torn
      return "the connection ended by a reset or without close_notify" if torn && @answer.ending == :whole
      "a cut answer ended with close_notify" if @tls && !torn && @answer.ending == :cut
    end

    def close = @connection.close

    private

    def parse(text)
      status_line, *lines = text.split("\r\n", -1)
      found = STATUS_LINE.match(status_line) or raise Malformed, "the status line #{status_line.inspect}"
      fields = lines.map do |line|
        FIELD.match(line.b)&.captures or raise Malformed, "the header #{line.inspect}"
      end
      Answer.new(found[2].to_i, fields)
    end

    # RFC 9112 section 6.3
    def framing
      lengths = lengths_of_answer
      return :close if @answer.status == 101
      return :none if @method == "HEAD" || [204, 304].include?(@answer.status)
      lengths.keys.first || :close
    end

    # RFC 9112 sections 6.1 and 6.2: one of the two, once, and neither in 1xx and 204.
    def lengths_of_answer
      fields = { chunked: @answer.values("transfer-encoding"), length: @answer.values("content-length") }
      fields.delete_if { |_, values| values.empty? }
      allowed = { chunked: (/\Achunked\z/ if @version == "1.1"), length: /\A\d+\z/ }
      right = fields.size < 2 && fields.all? { |name, values| values.size == 1 && allowed[name]&.match?(values[0]) }
      right = false if fields.any? && [101, 204].include?(@answer.status)
      right ? fields : raise(Malformed, "the framing of #{@answer.status} is #{fields}")
    end

    # RFC 9112 section 9.3
    def persistent?
      options = @answer.values("connection").flat_map { |value| value.downcase.split(/\s*,\s*/) }
      raise Malformed, "Connection: #{options}" if (%w[close keep-alive] - options).empty?
      return false if @answer.framing == :close || options.include?("close")
      @version == "1.1" || options.include?("keep-alive")
    end

    def exactly(size)
      @connection.take(size) || cut(@connection.rest)
    end

    # RFC 9112 section 7.1
    def chunks
      body = +"".b
      loop do
        size = @connection.take_until("\r\n") or return cut(body)
        raise Malformed, "the size of a chunk #{size[0, 40].inspect}" unless size.match?(CHUNK_SIZE)
        size = size.hex
        part = @connection.take(size) or return cut(body << @connection.rest)
        body << part
        mark = @connection.take(2) or return cut(body)
        raise Malformed, "#{mark.inspect} behind a chunk" unless mark == "\r\n"
        return body if size.zero?
      end
    end

    def until_close
      body = @connection.rest
      @connection.ending == :torn ? cut(body) : body
    end

    def cut(body)
      @answer.ending = :cut
      body
    end
  end
end
