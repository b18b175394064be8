# frozen_string_literal: true

require "test_helper"
require "rack"
require "support/raw_client"
require "support/server"

# Rack::Lint around an application with every shape of a response: what we give it and what we do with its
# answer keep to the specification.
class LintTest < Minitest::Test
  include ServerTest

  APP = <<~RUBY
    require "rack"
    require "rack/lint"

    # As small as the specification allows.
    class Each
      def initialize(*chunks) = @chunks = chunks
      def each(&block) = @chunks.each(&block)
    end

    TEXT = { "content-type" => "text/plain" }.freeze
    File.write("file.txt", "f" * 100_000)
    rack_3 = Rack.release.to_i > 2
    shapes = {
      "/array" => ->(_) { [200, TEXT.dup, %w[one two]] },
      "/empty_array" => ->(_) { [200, TEXT.dup, []] },
      "/length" => ->(_) { [200, TEXT.merge("content-length" => "6"), %w[one two]] },
      "/large" => ->(_) { [200, TEXT.dup, ["l" * 200_000]] },
      "/each" => ->(_) { [200, TEXT.dup, Each.new("one", "two")] },
      "/enumerator" => ->(_) { [200, TEXT.dup, Enumerator.new { |out| 100.times { |n| out << n.to_s } }] },
      "/file" => ->(env) { Rack::Files.new(Dir.pwd).call(env.merge("PATH_INFO" => "/file.txt")) },
      "/204" => ->(_) { [204, {}, []] },
      "/304" => ->(_) { [304, { "etag" => '"a"' }, []] },
      "/repeated" => ->(_) { [200, TEXT.merge("set-cookie" => rack_3 ? %w[a=b c=d] : "a=b\\nc=d"), ["cookies"]] },
      "/echo" => ->(env) { [200, TEXT.dup, [env["rack.input"].read]] },
      "/lines" => lambda { |env|
        count = 0
        env["rack.input"].each { count += 1 }
        [200, TEXT.dup, [count.to_s]]
      },
      "/rewind" => lambda { |env|
        first = env["rack.input"].read
        # Lint of Rack 3 hides it.
        env["rack.input"].rewind unless rack_3
        [200, TEXT.dup, [(rack_3 || env["rack.input"].read == first).to_s]]
      },
      "/errors" => lambda { |env|
        env["rack.errors"].puts("a note to the log")
        env["rack.errors"].flush
        [200, TEXT.dup, ["noted"]]
      },
      "/upload" => lambda { |env|
        parts = []
        env["rack.input"].each { |part| parts << part }
        [200, TEXT.dup, Each.new(*parts)]
      },
      "/streaming" => ->(_) { [200, TEXT.dup, rack_3 ? ->(out) { out.write("streamed"); out.close } : ["streamed"]] },
      "/upgrade" => lambda { |env|
        echo = ->(stream) { stream.write(stream.read(4).upcase); stream.flush; stream.close }
        [101, { "rack.protocol" => env["rack.protocol"].last }, echo]
      },
      "/finished" => lambda { |env|
        env["rack.response_finished"] << ->(_env, status, _headers, error) { warn("finished \#{status} \#{error.inspect}") }
        [200, TEXT.dup, ["ok"]]
      },
      "/session" => ->(env) { [200, TEXT.dup, [%w[QUERY_STRING SERVER_NAME SERVER_PORT].map { |key| env[key] }.join(" ")]] },
      "/full_hijack" => lambda { |env|
        io = env["rack.hijack"].call
        io.write("HTTP/1.1 101 Switching Protocols\\r\\n\\r\\nmine")
        io.close
        [200, TEXT.dup, []]
      },
      "/partial_hijack" => ->(_) { [200, TEXT.merge("rack.hijack" => ->(io) { io.write("mine"); io.close }), []] }
    }
    inner = ->(env) { shapes.fetch(env["PATH_INFO"], shapes["/array"]).call(env) }
    run Rack::Lint.new(inner)
  RUBY

  # path => [status, body]
  GETS = {
    "/array" => [200, "onetwo"], "/empty_array" => [200, ""], "/length" => [200, "onetwo"],
    "/large" => [200, "l" * 200_000], "/each" => [200, "onetwo"], "/enumerator" => [200, (0..99).to_a.join],
    "/file" => [200, "f" * 100_000], "/204" => [204, ""], "/304" => [304, ""], "/repeated" => [200, "cookies"],
    "/echo" => [200, ""], "/rewind" => [200, "true"], "/errors" => [200, "noted"],
    "/session?a=b" => [200, "a=b h 81"], "/lines" => [200, "0"],
    "/streaming" => [200, "streamed"], "/finished" => [200, "ok"], "/upload" => [200, ""]
  }.freeze

  # Lint of Rack 2 knows no body without `each`.
  RACK_3 = Rack.release.to_i > 2

  ["workers 0", "workers 2"].each do |config|
    name = config.tr(" ", "_")

    define_method(:"test_every_shape_of_a_response_with_#{name}") do
      lint(config) do |client|
        GETS.each { |path, expected| assert_equal expected, ask(client, "GET", path), path }
      end
    end

    define_method(:"test_head_has_no_body_with_#{name}") do
      lint(config) do |client|
        GETS.each { |path, (status, _)| assert_equal [status, ""], ask(client, "HEAD", path), path }
      end
    end
  end

  def test_bodies_of_requests
    lint("workers 0") do |client|
      large = "line\n" * 100_000
      { "/echo" => large, "/lines" => "100000", "/rewind" => "true" }.each do |path, answer|
        assert_equal [200, answer], ask(client, "POST", path, body: large), path
      end
      assert_equal [200, "abcde"], ask(client, "PUT", "/echo", body: "abcde")
      client.write("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
      assert_equal "abc", client.read_response.body
    end
  end

  def test_methods_and_targets
    lint("workers 0") do |client|
      requests = %w[GET POST PUT PATCH DELETE OPTIONS PROPFIND].map { |verb| [verb, "/"] }
      requests += ["/a%20b", "//x", "/caf\u00e9".b, "/?q=[]"].map { |path| ["GET", path] }
      requests.each { |verb, path| assert_equal [200, "onetwo"], ask(client, verb, path), "#{verb} #{path}" }
    end
  end

  def test_several_headers_of_one_name_are_several_lines
    lint("workers 0") do |client|
      client.write("GET /repeated HTTP/1.1\r\nHost: h\r\n\r\n")
      assert_equal "a=b\nc=d", client.read_response.headers["set-cookie"]
    end
  end

  def test_a_streamed_body
    # Lint of Rack 2 wants an input that can be rewound.
    return unless RACK_3

    lint("workers 0\nweb { stream_bodies '/upl*' }") do |client|
      large = "line\n" * 100_000
      assert_equal [200, large], ask(client, "POST", "/upload", body: large)
      client.write("POST /upload HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
      assert_equal "abc", client.read_response.body
    end
  end

  def test_an_upgrade
    server = boot(rackup: APP, config: "workers 0")
    upgrade = "GET /upgrade HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: a, b\r\n\r\necho"
    assert_match(%r{\AHTTP/1\.1 101 .*upgrade: b\r\n.*ECHO\z}m, RawClient.exchange(server.port, upgrade)) if RACK_3
    assert_equal 200, server.get("/finished").status
    server.eventually("the callback") { server.log.include?("finished 200 nil") }
    refute_match(/Lint|ERROR/, server.log)
    assert_equal 0, server.stop
  end

  def test_hijacks
    server = boot(rackup: APP, config: "workers 0")
    full = RawClient.exchange(server.port, "GET /full_hijack HTTP/1.1\r\nHost: h\r\n\r\n")
    assert_equal "HTTP/1.1 101 Switching Protocols\r\n\r\nmine", full
    partial = RawClient.exchange(server.port, "GET /partial_hijack HTTP/1.1\r\nHost: h\r\n\r\n")
    assert_match(%r{\AHTTP/1\.1 200 OK\r\n.*\r\n\r\nmine\z}m, partial)
    refute_match(/Lint|ERROR/, server.log)
    assert_equal 0, server.stop
  end

  private

  def lint(config)
    server = boot(rackup: APP, config: config)
    RawClient.open(server.port) { |client| yield client }
    refute_match(/Lint|ERROR/, server.log)
    assert_equal 0, server.stop
  end

  def ask(client, verb, path, body: nil)
    length = "Content-Length: #{body.bytesize}\r\n" if body
    client.write("#{verb} #{path} HTTP/1.1\r\nHost: h:81\r\nContent-Type: text/plain\r\n#{length}\r\n#{body}".b)
    answer = client.read_response(head: verb == "HEAD")
    [answer.status, answer.body]
  end
end
