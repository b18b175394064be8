# frozen_string_literal: true

require "timeout"
require_relative "client_http1"
require_relative "client_http2"
require_relative "comparison"
require_relative "stages"

module Crossings
  # Tries one case on a server: sends the request, plays the client's part, and collects what differs from the model.
  class Attempt
    TIMEOUT_S = 60

    attr_reader :id, :one, :verdict

    # @param site [#port, #tls, #stages] the server
    def initialize(id, one, site)
      @id = id
      @one = one
      @site = site
      @verdict = Model.expected(one)
      @problems = []
    end

    # @yield when the application waits at its gate, in a case with a restart; it returns when the restart is under way
    # @return [Array<String>] what is wrong
    def run(&at_gate)
      Timeout.timeout(TIMEOUT_S) { try(&at_gate) }
      @problems
    rescue StandardError => e
      places = e.backtrace.grep(/crossings/).first(3).map { |line| line[%r{[^/]+:\d+}] }
      @problems << "#{e.class}: #{e.message} (#{places.join(", ")})"
    ensure
      @client&.close
    end

    def target = "/#{@one.body}?id=#{@id}&size=#{@one.size}&failure=#{@one.failure}"

    private

    def try(&at_gate)
      @stage = @site.stages.open(@id, gate: (@one.gate if @one.restart? || @one.client == "leaves"))
      @client = connect(small: @one.client != "reads")
      @client.request(@one.head? ? "HEAD" : "GET", target, request_headers)
      @client.say("ping\n") if @verdict.status == 101
      at_gate&.call(@stage)
      @one.client == "leaves" ? leave : read
      @stage.wait("done")
      closes = @stage.count("closed")
      @problems << "the body was closed #{closes} times, not #{@verdict.closes}" if closes != @verdict.closes
      neighbour
    ensure
      @site.stages.close(@id)
    end

    def connect(small:)
      client = @one.http2? ? ClientHttp2 : ClientHttp1
      client.new(@site.port(@one.version), @one.version, tls: @site.tls, small: small)
    end

    def request_headers
      headers = {
        "range" => { "Range" => "bytes=#{RANGE.min}-#{RANGE.max}" }, "condition" => { "If-None-Match" => "W/#{ETAG}" }
      }.fetch(@one.ask, @one.gzip? ? { "Accept-Encoding" => "gzip" } : {})
      return headers if @one.http2? || !%w[upgrade switch].include?(@one.body)
      { **headers, "Connection" => @one.version == "http10" ? "keep-alive, Upgrade" : "Upgrade", "Upgrade" => "echo" }
    end

    def read
      @stage.release
      answer = @client.read_head
      if answer && @one.client == "stalls"
        @client.begin_body
        # Others are served meanwhile.
        neighbour
      end
      @client.read_rest if answer
      compare(answer)
      answer && after(answer)
    end

    # Leaves once the answer has begun, and the application is in the middle of it if it has a middle.
    def leave
      @stage.wait(@one.gate)
      @stage.release if @one.gate == "arrived"
      answer = @client.read_head
      @client.begin_body if answer
      @client.leave
      @stage.release if @one.gate == "middle"
      compare(answer)
      probe if @one.http2?
    end

    def compare(answer) = @problems.concat(Comparison.new(@one, @verdict, answer).problems)

    # No byte of an answer may be part of the next one.
    def after(answer)
      return probe if @client.usable?
      problem = @client.problem_at_end unless @one.http2? || by_itself?(answer)
      @problems << problem if problem
    end

    # The application has closed the connection that it broke off.
    def by_itself?(answer) = answer.ending == :cut && @one.given == "full"

    def probe
      @client.request("GET", "/probe?n=#{@id}", {})
      answer = @client.read_head
      # A server that stops may close an idle connection at any time (RFC 9112 section 9.5), or refuse a new stream.
      return if answer.nil? && @one.restart?
      return @problems << "no answer to the next request of the connection" unless answer
      @client.read_rest
      found = [answer.status, answer.body]
      @problems << "the next answer of the connection is #{found.inspect[0, 200]}" if found != [200, "hello #{@id}"]
    end

    # A server that stops has none.
    def neighbour
      return if @one.restart == "stop"
      client = ClientHttp1.new(@site.port("http11"), "http11", tls: nil)
      client.request("GET", "/neighbour?n=#{@id}", "Connection" => "close")
      found = client.read_head && client.read_rest.body
      @problems << "a neighbour got #{found.inspect}" if found != "hello #{@id}"
    ensure
      client&.close
    end
  end
end
