# frozen_string_literal: true

require "test_helper"
require "json"
require "support/server"
require "support/tls_server"

# Which headers that speak for a client reach the application, and what they change: each kind of bind with each value
# of trusted_proxies, over both versions of HTTP, against a model.
class BelievedPeersTest < Minitest::Test
  include ServerTest
  include TlsServer

  FILES = { "X-Accel-Mapping" => "/a=/b", "X-Sendfile-Type" => "X-Accel-Redirect" }.freeze
  PROXIED = { "X-Forwarded-For" => "9.9.9.9, 203.0.113.7", "X-Forwarded-Host" => "evil.example",
              "X-Forwarded-Proto" => "https", "X-Forwarded-Port" => "444", "X-Forwarded-Ssl" => "on",
              "X-Forwarded-Scheme" => "https", "X-Forwarded-Anything" => "1", "X-Real-IP" => "9.9.9.9",
              "Client-IP" => "9.9.9.9" }.freeze
  ORDINARY = { "X-Forwarded" => "1", "X-Request-Id" => "1", "Cookie" => "a=1", "From" => "a@b.c" }.freeze
  TRACE = "a" * 32
  TRACED = { "traceparent" => "00-#{TRACE}-#{"b" * 16}-01", "tracestate" => "c=1" }.freeze
  LATE_S = 100

  APP = <<~RUBY
    require "json"
    run ->(env) { [200, {}, [JSON.generate(env.select { |_, value| value.is_a?(String) })]] }
  RUBY
  TRUST = [nil, :none, :any, :private, "10.0.0.0/8"].freeze

  PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

  def test_http_and_unix_binds = TRUST.each { |trust| check(trust, %i[http unix]) }

  def test_http_https_and_unix_binds = TRUST.each { |trust| check(trust, %i[http https unix]) }

  def test_a_client_chooses_no_file_by_rack_sendfile
    app = <<~RUBY
      require "rack"
      use Rack::Sendfile, "X-Accel-Redirect"
      run ->(_) { [200, { "content-type" => "text/plain" }, File.open("files/hello")] }
    RUBY
    ["", "trusted_proxies :any", "trusted_proxies :private"].each do |trust|
      server = boot(rackup: app, config: "workers 0\nweb { sendfile_roots 'storage'\n#{trust} }") { |one|
        one.write("storage/secret", "secret")
        one.write("files/hello", "harmless")
      }
      mapping = "#{server.path("files/hello")}=/secret"
      headers = [{ "X-Accel-Mapping" => mapping },
                 { "X_Accel_Mapping" => mapping, "X-Sendfile-Type" => "X-Accel-Redirect" }]
      %i[over_1 over_2].product(headers) { |how, one| assert_equal "harmless", ask(server, :http, how, one).last }
      assert_equal 0, server.stop
    end
  end

  private

  def check(trust, kinds)
    setting = "trusted_proxies #{trust.inspect}" if trust
    server = boot(rackup: APP, config: <<~RUBY)
      #{kinds.map { |kind| bind_of(kind) }.join("\n")}
      workers 0
      web { server_timing true\n#{setting} }
      traces { endpoint "http://127.0.0.1:9"; sample 0.0 }
    RUBY
    kinds.product(%i[over_1 over_2]).each do |kind, how|
      trusted = trust_of(trust, kind, kinds)
      seen = seen(server, kind, how)
      assert_equal expected(trusted, kind), seen.first(4), [trust, kinds, kind, how].inspect
      assert_equal trusted != :hidden, seen.last > LATE_S * 900 if how == :over_1
    end
    assert_equal 0, server.stop
    assert_equal [:none, :private].include?(trust) ? 0 : 1, server.log.scan(/did not pass the header/).size, server.log
  end

  # @return [Symbol] what a peer on this machine is
  def trust_of(trust, kind, kinds)
    case trust
    when nil then kinds.include?(:https) && kind != :unix ? :hidden : :passed_on
    when :any then :passed_on
    when :private then :proxy
    else :hidden
    end
  end

  # @return [Array] names of headers, REMOTE_ADDR, the scheme, the trace
  def expected(trusted, kind)
    late = { "X-Request-Start" => nil }
    names = { hidden: ORDINARY, passed_on: { **PROXIED, **ORDINARY, **late, "Forwarded" => nil },
              proxy: { **PROXIED, **ORDINARY, **late, **FILES } }.fetch(trusted).keys
    [names.map { |name| key(name) }.sort, trusted == :proxy ? "203.0.113.7" : "127.0.0.1",
     kind == :https || trusted == :proxy ? "https" : "http",
     trusted == :hidden ? [false, "00", nil] : [true, "01", "c=1"]]
  end

  # @return [Array] the same as seen by the application, and the ms in which the request waited
  def seen(server, kind, how)
    sent = { **FILES, **PROXIED, **ORDINARY, "Forwarded" => "for=9.9.9.9;proto=http",
                                             "X-Request-Start" => "t=#{(Time.now - LATE_S).to_f}" }
    head, body = ask(server, kind, how, { **sent, **TRACED })
    env = JSON.parse(body)
    trace = env["HTTP_TRACEPARENT"].split("-")
    [env.keys & sent.keys.map { |name| key(name) }, *env.values_at("REMOTE_ADDR", "rack.url_scheme"),
     [trace[1] == TRACE, trace[3], env["HTTP_TRACESTATE"]], head.to_s[/queue;dur=([\d.]+)/, 1].to_f]
      .tap { |all| all.first.sort! }
  end

  def key(name) = "HTTP_#{name.upcase.tr("-", "_")}"

  def bind_of(kind)
    case kind
    when :http then 'bind "tcp://127.0.0.1:0"'
    when :https then bind(**@tls.pair("app"))
    else 'bind "unix://app.sock"'
    end
  end

  # @return [Array(String, String)] head (over HTTP/1) and body
  def ask(server, kind, how, headers)
    io = connect(server, kind, how)
    send(how, io, headers)
  ensure
    io&.close
  end

  def connect(server, kind, how)
    return UNIXSocket.new(server.path("app.sock")) if kind == :unix

    socket = TCPSocket.new("127.0.0.1", kind == :https ? port(server) : server.port)
    return socket if kind == :http

    context = @tls.context.tap { |one| one.alpn_protocols = [how == :over_2 ? "h2" : "http/1.1"] }
    OpenSSL::SSL::SSLSocket.new(socket, context).tap { |one|
      one.hostname = "localhost"
      one.sync_close = true
      one.connect
    }
  end

  def over_1(socket, headers)
    lines = { "Host" => "site.example", "Connection" => "close", **headers }.map { |pair| "#{pair.join(": ")}\r\n" }
    socket.write("GET / HTTP/1.1\r\n#{lines.join}\r\n")
    socket.read.split("\r\n\r\n", 2)
  end

  # Literal fields without an index (RFC 7541 section 6.2.2), each below 127 bytes.
  def over_2(socket, headers)
    scheme = socket.is_a?(OpenSSL::SSL::SSLSocket) ? "https" : "http"
    fields = { ":method" => "GET", ":scheme" => scheme, ":path" => "/", ":authority" => "site.example",
               **headers.transform_keys(&:downcase) }
    block = fields.map { |name, value| [0, name.bytesize, name, value.bytesize, value].pack("CCa*Ca*") }.join
    socket.write(PREFACE, frame(4, 0, 0, ""), frame(1, 5, 1, block))
    body = +""
    loop do
      high, low, type, flags, stream = socket.read(9).unpack("nCCCN")
      payload = socket.read((high << 8) + low)
      body << payload if type.zero?
      return [nil, body] if stream == 1 && type < 2 && flags.anybits?(1)
    end
  end

  def frame(type, flags, stream, payload)
    [payload.bytesize >> 8, payload.bytesize & 255, type, flags, stream, payload].pack("nCCCNa*")
  end
end
