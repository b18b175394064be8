# frozen_string_literal: true

require_relative "workload_case"
# "digest" alone loads the class on first use, which fails in some of several threads at once.
require "digest/sha1"
require "json"
require "rack"
require "support/raw_client"
require "support/web_socket"

# What applications and middleware of Rack 2 and 3 commonly do, between Rack::Lint and a client.
class ConformTest < Minitest::Test
  include WorkloadCase

  RACK_3 = Rack.release.to_i > 2
  # Rack 2's Lint wants `each` of every body.
  LINTED = ->(app) { RACK_3 ? Rack::Lint.new(app) : app }

  # A middleware that is the body of its own response, so that it has `call` and `each`.
  class ItsOwnBody
    def call(_env) = [200, {}, self]

    def each = yield "by each"
  end

  # Only `each`, as the specification allows.
  class EachOf
    def initialize(input) = @input = input

    def each(&block) = @input.each(&block)
  end

  # A body of Rack 3 that answers each text frame of a WebSocket with the same text.
  ECHO_FRAMES = lambda do |stream|
    while (head = stream.read(2))
      length = head.getbyte(1) & 0x7F
      mask, text = [4, length].map { |bytes| stream.read(bytes).bytes }
      text = text.each_with_index.map { |byte, index| byte ^ mask[index % 4] }
      stream.write([0x81, length, *text].pack("C*"))
      stream.flush
    end
    stream.close
  end

  APPS = {
    "/status" => ->(env) { [env["HTTP_STATUS"].to_i, {}, []] },
    "/echo" => ->(env) { [200, {}, EachOf.new(env["rack.input"])] },
    "/cookies" => lambda { |env|
      response = Rack::Response.new
      JSON.parse(env["rack.input"].read).each { |name, value| response.set_cookie(name, value) }
      response.finish
    },
    "/headers" => lambda { |env|
      response = Rack::Response.new
      JSON.parse(env["rack.input"].read).each { |name, value| response.add_header(name, value) }
      response.finish
    },
    "/hijack" => ->(_) { [200, { "rack.hijack" => ->(stream) { stream.write("streamed") && stream.close } }, []] },
    "/streaming" => ->(_) { [200, {}, ->(stream) { stream.write("streamed") && stream.close }] },
    "/enumerator" => ->(_) { [200, {}, Enumerator.new { |out| 10.times { |n| out << "line #{n}\n" } }] },
    "/itself" => ItsOwnBody.new,
    "/websocket" => lambda { |env|
      accept = Digest::SHA1.base64digest(env["HTTP_SEC_WEBSOCKET_KEY"] + WebSocket::SALT)
      [101, { "rack.protocol" => "websocket", "sec-websocket-accept" => accept }, ECHO_FRAMES]
    },
    # As applications for Rack 3.0 do, which knows no rack.protocol.
    "/websocket_3_0" => lambda { |env|
      accept = Digest::SHA1.base64digest(env["HTTP_SEC_WEBSOCKET_KEY"] + WebSocket::SALT)
      [101, { "connection" => "upgrade", "upgrade" => "websocket", "sec-websocket-accept" => accept }, ECHO_FRAMES]
    }
  }.freeze

  def setup
    super
    # Lint is not what is tested: under stress it alone takes minutes.
    @port = serve do |env|
      relaxed { env }
      app = APPS[env["PATH_INFO"]] || ->(*) { [200, {}, ["#{env["REQUEST_METHOD"]} #{env["PATH_INFO"]}"]] }
      LINTED.call(app).call(env)
    end
  end

  def teardown
    # A thread that is stopped at work would be in the log.
    eventually { @workload.status[:pool][:running].zero? }
    super
    refute_match(/Lint|failed|ERROR/, @output.string)
  end

  def test_the_status_is_the_applications
    [200, 204, 304, 404, 422, 503].each do |status|
      assert_equal status, ask("/status", headers: { "Status" => status }).status
    end
  end

  def test_a_body_is_echoed
    assert_equal "hello world", ask("/echo", body: "hello world").body
  end

  def test_each_cookie_is_a_line
    assert_equal "a=1", ask("/cookies", body: '{"a": 1}').headers["set-cookie"]
    assert_equal "a=1\nb=2", ask("/cookies", body: '{"a": 1, "b": 2}').headers["set-cookie"]
  end

  def test_headers_are_the_applications
    response = ask("/headers", body: '{"content-type": "text/plain", "x-two": "words here"}')
    assert_equal ["text/plain", "words here"], response.headers.values_at("content-type", "x-two")
  end

  def test_responses_are_streamed
    assert_equal "streamed", ask("/hijack").body
    assert_equal "streamed", ask("/streaming").body
    assert_equal Array.new(10) { |n| "line #{n}\n" }.join, ask("/enumerator").body
  end

  def test_a_middleware_may_be_its_own_body
    assert_equal "by each", ask("/itself").body
  end

  def test_options_of_a_path_and_of_the_server
    assert_equal ["OPTIONS /", "OPTIONS *"], ["/", "*"].map { |target| ask(target, verb: "OPTIONS").body }
  end

  def test_web_sockets_are_echoed
    %w[/websocket /websocket_3_0].each do |path|
      client = WebSocket.new(@port, path, protocol: "echo")
      ["hello", "", "x" * 100].each { |text| assert_equal text, client.tap { _1.write(text) }.read }
    ensure
      client&.close
    end
  end

  private

  def ask(path, verb: "GET", headers: {}, body: nil)
    lines = headers.map { |name, value| "#{name}: #{value}\r\n" }.join
    lines << "Content-Length: #{body.bytesize}\r\n" if body
    RawClient.open(@port, timeout_s: WorkloadCase::ANSWER_S) do |client|
      client.write("#{verb} #{path} HTTP/1.1\r\nHost: localhost\r\n#{lines}\r\n#{body}")
      relaxed { client.read_response }
    end
  end
end
