# frozen_string_literal: true

require "test_helper"
require "json"
require "support/puma_server"
require "support/raw_client"
require "support/server"

# The env of a request means the same as Puma's, key by key.
class EnvParityTest < Minitest::Test
  include ServerTest

  # Answers with the env: Strings as bytes in hex, other values as what they are good for. The encoding of a String
  # of ASCII alone says nothing.
  APP = <<~RUBY
    require "json"
    describe = lambda do |value|
      case value
      when String then [value.ascii_only? ? "ASCII" : value.encoding.to_s, value.unpack1("H*")]
      when true, false, nil, Numeric then value
      when Array then value.map { |item| item.is_a?(Numeric) ? item : item.class.name }
      else { read: "input", puts: "errors", call: "callable" }.find { |name, _| value.respond_to?(name) }&.last || "object"
      end
    end
    run(lambda do |env|
      seen = env.map { |key, value| [key, describe.call(value)] }.to_h
      seen["body"] = env["rack.input"].read.unpack1("H*")
      env["rack.input"].rewind
      seen["body again"] = env["rack.input"].read.unpack1("H*")
      seen["body at its end"] = [env["rack.input"].read(1), env["rack.input"].gets, env["rack.input"].read]
      [200, { "content-type" => "application/json" }, [JSON.generate(seen)]]
    end)
  RUBY

  H = "Host: example.org:8080\r\n"

  REQUESTS = {
    "simplest" => "GET / HTTP/1.1\r\n#{H}\r\n",
    "path and query" => "GET /a/b.html?c=d&e[]=f HTTP/1.1\r\n#{H}\r\n",
    "empty query" => "GET /a? HTTP/1.1\r\n#{H}\r\n",
    "query with question marks" => "GET /a?b?c=/d HTTP/1.1\r\n#{H}\r\n",
    "percent escapes" => "GET /a%20b%2Fc%zz?d=%C3%A9+x HTTP/1.1\r\n#{H}\r\n",
    "UTF-8 bytes in the path" => "GET /caf\u00e9 HTTP/1.1\r\n#{H}\r\n",
    "UTF-8 bytes in the query" => "GET /?q=\u20ac HTTP/1.1\r\n#{H}\r\n",
    "several slashes and dots" => "GET //a//../b/./ HTTP/1.1\r\n#{H}\r\n",
    "semicolon" => "GET /a;b=c?d;e HTTP/1.1\r\n#{H}\r\n",
    "POST with a length" => "POST /form HTTP/1.1\r\n#{H}Content-Type: application/x-www-form-urlencoded\r\n" \
                            "Content-Length: 7\r\n\r\na=b&c=d",
    "POST in chunks" => "POST / HTTP/1.1\r\n#{H}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    "POST in chunks with a type" => "POST / HTTP/1.1\r\n#{H}Content-Type: text/plain; charset=utf-8\r\n" \
                                    "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
    "POST of nothing" => "POST / HTTP/1.1\r\n#{H}Content-Length: 0\r\n\r\n",
    "POST without a length" => "POST / HTTP/1.1\r\n#{H}\r\n",
    "PUT of binary" => "PUT /a HTTP/1.1\r\n#{H}Content-Length: 4\r\n\r\n\x00\xff\r\n".b,
    "PUT of a large body" => "PUT /a HTTP/1.1\r\n#{H}Content-Length: 400000\r\n\r\n#{"x" * 400_000}",
    "PATCH of JSON" => "PATCH /a HTTP/1.1\r\n#{H}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "DELETE" => "DELETE /a/1 HTTP/1.1\r\n#{H}\r\n",
    "DELETE with a body" => "DELETE /a HTTP/1.1\r\n#{H}Content-Length: 2\r\n\r\nhi",
    "OPTIONS of a path" => "OPTIONS /a HTTP/1.1\r\n#{H}\r\n",
    "OPTIONS of the server" => "OPTIONS * HTTP/1.1\r\n#{H}\r\n",
    "TRACE" => "TRACE /a HTTP/1.1\r\n#{H}\r\n",
    "PROPFIND" => "PROPFIND /a HTTP/1.1\r\n#{H}Depth: 1\r\n\r\n",
    "absolute target" => "GET http://example.org:8080/a?b HTTP/1.1\r\n#{H}\r\n",
    "absolute target of another host" => "GET http://other.example/a HTTP/1.1\r\n#{H}\r\n",
    "host without port" => "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "host in capitals" => "GET / HTTP/1.1\r\nHOST: EXAMPLE.org\r\n\r\n",
    "host with an empty port" => "GET / HTTP/1.1\r\nHost: example.org:\r\n\r\n",
    "host IPv4" => "GET / HTTP/1.1\r\nHost: 127.0.0.1:3000\r\n\r\n",
    "host IPv6" => "GET / HTTP/1.1\r\nHost: [::1]:3000\r\n\r\n",
    "host IPv6 without port" => "GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n",
    "HTTP/1.0" => "GET / HTTP/1.0\r\n\r\n",
    "HTTP/1.0 with host" => "GET / HTTP/1.0\r\n#{H}\r\n",
    "HTTP/1.0 with a body" => "POST / HTTP/1.0\r\n#{H}Content-Length: 2\r\n\r\nhi",
    "repeated headers" => "GET / HTTP/1.1\r\n#{H}Accept: a\r\nAccept: b\r\naccept: c\r\nX-One: 1\r\nX-One: 1\r\n\r\n",
    "repeated cookies" => "GET / HTTP/1.1\r\n#{H}Cookie: a=b\r\nCookie: c=d; e=f\r\n\r\n",
    "header with underscores" => "GET / HTTP/1.1\r\n#{H}X_Under: 1\r\n\r\n",
    "underscore before dash" => "GET / HTTP/1.1\r\n#{H}X_Who: underscore\r\nX-Who: dash\r\n\r\n",
    "dash before underscore" => "GET / HTTP/1.1\r\n#{H}X-Who: dash\r\nX_Who: underscore\r\n\r\n",
    "header values" => "GET / HTTP/1.1\r\n#{H}X-Empty:\r\nX-Spaces:   a  b  \r\nX-Tab: a\tb\r\n" \
                       "X-Colon: a: b:c\r\nX-Bytes: caf\u00e9\r\n\r\n",
    "proxy headers" => "GET / HTTP/1.1\r\n#{H}X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: public.example\r\n" \
                       "X-Forwarded-Port: 443\r\nX-Real-Ip: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\n\r\n",
    "browser" => "GET / HTTP/1.1\r\n#{H}User-Agent: Mozilla/5.0 (X11)\r\nAccept: text/html,*/*;q=0.8\r\n" \
                 "Accept-Encoding: gzip, br\r\nConnection: keep-alive\r\nReferer: http://x/\r\n" \
                 "If-None-Match: \"a\"\r\n\r\n",
    "authorization" => "GET / HTTP/1.1\r\n#{H}Authorization: Basic YTpi\r\nOrigin: http://x\r\n\r\n",
    "upgrade" => "GET /cable HTTP/1.1\r\n#{H}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
  }.transform_values(&:b).freeze

  # Without the gem no test here runs.
  PUMA, RACK = %w[puma rack].map do |name|
    Gem::Specification.find_all_by_name(name).map(&:version).max || Gem::Version.new("0")
  end
  PUMA_MAJOR = PUMA.segments.first
  HEADER_VERSION = RACK >= Gem::Version.new("3.1") && PUMA_MAJOR.between?(1, 7)

  # key => why it differs, for every request
  KNOWN = {
    "SERVER_SOFTWARE" => "names the server",
    "rack.response_finished" => "offered to applications ahead of Rack 3",
    "rack.protocol" => "of Rack 3.1; Puma has none",
    "puma.config" => "Puma's own",
    "puma.socket" => "Puma's own",
    "puma.request_body_wait" => "a time",
    "puma.peercert" => "Puma's own",
    "puma.mark_as_io_bound" => "Puma's own",
    **(HEADER_VERSION ? { "HTTP_VERSION" => "from Rack 3.1 on a header of the client, but not for Puma 7" } : {})
  }.freeze

  # request => { key => why it differs }
  PROTOCOL = "the protocol of the request (RFC 3875 4.1.16); Puma 5 says HTTP/1.1 whatever was asked"
  TARGET = "the host of an absolute target replaces Host (RFC 9112 3.2.2)"
  LISTENER = "without a Host header it is the address that is listened on; Puma says localhost:80"
  HTTP_1_0 = PUMA_MAJOR > 5 ? {} : { "SERVER_PROTOCOL" => PROTOCOL }.freeze
  KNOWN_FOR = {
    "absolute target of another host" => { "HTTP_HOST" => TARGET, "SERVER_NAME" => TARGET, "SERVER_PORT" => TARGET },
    "host with an empty port" => { "SERVER_PORT" => "an empty port is the default one (RFC 3986 6.2.3), and a number" },
    "HTTP/1.0" => { **HTTP_1_0, "SERVER_NAME" => LISTENER, "SERVER_PORT" => LISTENER },
    "HTTP/1.0 with host" => HTTP_1_0,
    "HTTP/1.0 with a body" => HTTP_1_0,
    "repeated cookies" => { "HTTP_COOKIE" => "a comma would be part of a cookie (RFC 6265 4.2.1, RFC 9113 8.2.3)" }
  }.freeze

  def setup
    needs_gems "nio4r", "puma"
    super
    @puma = PumaServer.new(APP).start
    @server = boot(rackup: APP, config: "workers 0\nthreads 1..32")
  end

  def teardown
    @puma&.close
    super
  end

  def test_every_request_means_the_same
    differences = REQUESTS.flat_map do |name, bytes|
      ours, theirs = [@server, @puma].map { |server| env_at(server.port, bytes) }
      known = KNOWN.merge(KNOWN_FOR.fetch(name, {}))
      (ours.keys | theirs.keys).reject { |key| known.key?(key) || ours[key] == theirs[key] }.map do |key|
        "#{name}: #{key}: ours #{show(ours, key)}, Puma's #{show(theirs, key)}"
      end
    end
    assert_empty differences, differences.join("\n")
  end

  # A reason that no longer holds has to go.
  def test_every_known_difference_is_one
    KNOWN_FOR.each do |name, known|
      ours, theirs = [@server, @puma].map { |server| env_at(server.port, REQUESTS.fetch(name)) }
      known.each_key { |key| refute_equal theirs[key], ours[key], "#{name}: #{key}" }
    end
  end

  private

  def env_at(port, bytes)
    RawClient.open(port) do |client|
      answer = client.write(bytes).read_response
      return { "status" => answer.status } unless answer.status == 200
      JSON.parse(answer.body).merge("status" => 200)
    end
  end

  def show(env, key)
    return "none" unless env.key?(key)
    value = env[key]
    if value.is_a?(Array) && value[1].is_a?(String)
      "#{[value[1]].pack("H*").inspect} (#{value[0]})"
    else
      value.inspect[0,
                    80]
    end
  end
end
