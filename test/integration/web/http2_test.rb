# frozen_string_literal: true

require "test_helper"
require "rack"
require "support/tls_server"

# HTTP/2 against the real server, with the client of nghttp2.
class Http2Test < Minitest::Test
  include ServerTest
  include TlsServer

  ENV_APP = <<~'RUBY'
    keys = %w[SERVER_PROTOCOL HTTP_VERSION REQUEST_METHOD PATH_INFO QUERY_STRING HTTP_HOST SERVER_NAME rack.url_scheme
              HTTP_COOKIE rack.hijack?]
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/none" then [204, {}, []]
      when "/hints"
        env["rack.early_hints"].call("link" => "</a.css>; rel=preload")
        [200, {}, ["late"]]
      when "/hijack" then env["rack.hijack"] ? env["rack.hijack"].call : [200, {}, ["no hijack"]]
      when "/cookies" then [200, { "set-cookie" => "a=1\nb=2", "Connection" => "close" }, ["c"]]
      when "/raise" then raise "asked for"
      when "/partial"
        partial = lambda do |io|
          io << "par"
          Thread.new { io.write_nonblock("tial") && io.close }
        end
        [200, { "rack.hijack" => partial }, []]
      when "/switch" then [101, { "upgrade" => "x", "connection" => "upgrade" }, ->(_io) { raise "not switched" }]
      else [200, { "content-type" => "text/html" }, [env.values_at(*keys).join("|"), "-" * 2000]]
      end
    end)
  RUBY

  def test_requests_of_all_kinds_over_tls
    server = serve
    base = "https://127.0.0.1:#{port(server)}"
    assert_equal "on|https|#{port(server)}||||", nghttp("#{base}/env")
    %w[/big /parts /file].each { |path| assert BIG == nghttp("#{base}#{path}"), path }
    server.write("body", BIG)
    assert BIG == nghttp("-d", "#{server.dir}/body", "#{base}/echo")
    assert BIG == nghttp("-d", "#{server.dir}/body", "-H", "expect: 100-continue", "#{base}/echo")
    # One that breaks off ends with an error.
    assert_match(/INTERNAL_ERROR/, nghttp("-v", "#{base}/cut"))
    # Others still get HTTP/1.1.
    assert_equal "hello", client(server).write(request("/")).read_response.body
    assert_equal 0, server.stop
  end

  def test_what_the_application_sees
    server = boot(rackup: ENV_APP, config: "workers 0\nweb { early_hints true; compress true; access_log :common }")
    base = "http://127.0.0.1:#{server.port}"
    seen = nghttp("-H", ":authority: a.test:81", "-H", "cookie: a=1", "-H", "cookie: b=2", "#{base}/p?q=1")
    # From Rack 3.1 on HTTP_VERSION is a header of the client.
    version = Gem::Version.new(Rack.release) < Gem::Version.new("3.1") ? "HTTP/2.0" : ""
    assert_equal "HTTP/2.0|#{version}|GET|/p|q=1|a.test:81|a.test|http|a=1; b=2|false", seen.delete_suffix("-" * 2000)
    assert_match(/content-encoding: gzip/, nghttp("-nv", "-H", "accept-encoding: gzip", "#{base}/p"))
    assert_match(/:status: 204/, nghttp("-nv", "#{base}/none"))
    assert_match(%r{:status: 103.*link: </a\.css>.*:status: 200}m, nghttp("-nv", "#{base}/hints"))
    cookies = nghttp("-nv", "#{base}/cookies")
    assert_match(/set-cookie: a=1.*set-cookie: b=2/m, cookies)
    refute_match(/connection: close/, cookies)
    assert_match(/:status: 500/, nghttp("-nv", "#{base}/raise"))
    assert_equal "no hijack", nghttp("#{base}/hijack")
    assert_equal "partial", nghttp("#{base}/partial")
    assert_match(/:status: 400/, nghttp("-nv", "-H", "host: b.test", "#{base}/p"))
    # A header of HTTP/1, which nobody but the crate h2 sees: the stream is reset.
    nghttp("-H", "te: gzip", "#{base}/p")
    server.wait_line(/"-" 400 0 /)
    2.times { assert_match(/HTTP_1_1_REQUIRED/, nghttp("-nv", "#{base}/switch")) }
    assert_equal 0, server.stop
    assert_equal 1, server.log.scan(%r{WARN .*101, but came over HTTP/2}).size, server.log
  end

  PAGE = Array.new(500) { |at| "<li>line #{at}</li>\n" }.join
  PAGE_APP = <<~RUBY
    page = Array.new(500) { |at| "<li>line \#{at}</li>\\n" }
    html = { "content-type" => "text/html" }
    bodies = {
      "/array" => -> { page },
      "/each" => -> { page.each_slice(10).lazy.map(&:join) },
      "/call" => -> { ->(stream) { page.each { |line| stream.write(line) }; stream.close } },
    }
    run ->(env) { [200, html, bodies.fetch(env["PATH_INFO"]).call] }
  RUBY

  # nghttp decodes what it gets, and writes nothing of what it cannot decode.
  def test_compressed_answers_of_every_kind
    server = serve("bind \"tcp://127.0.0.1:0\"\nworkers 0\nweb { compress true }", rackup: PAGE_APP)
    ["https://127.0.0.1:#{port(server)}", "http://127.0.0.1:#{server.port}"].each do |base|
      %w[/array /each /call].each do |path|
        assert_match(/content-encoding: gzip/, nghttp("-nv", "#{base}#{path}"), base)
        assert_equal PAGE, nghttp("#{base}#{path}"), "#{base}#{path}"
      end
    end
    assert_equal 0, server.stop
  end

  # A frame and its head are encrypted together.
  def test_a_large_answer_takes_one_tls_record_a_frame
    server = serve
    listener = TCPServer.new("127.0.0.1", 0)
    records = Thread.new { relayed_records(listener.accept, port(server)) }
    url = "https://127.0.0.1:#{listener.addr[1]}/big"
    assert BIG == nghttp("--window-bits=24", "--connection-window-bits=24", url)
    sizes = records.value
    frames = BIG.bytesize.fdiv(16_375).ceil
    assert_includes frames..(frames + 10), sizes.size, sizes.tally
    assert_equal 0, server.stop
  end

  # What Puma takes is taken in both versions; what is longer is named in the log.
  def test_limits_of_heads
    rackup = "run ->(env) { [200, {}, [env.values_at('QUERY_STRING', 'HTTP_X').map { |it| it.to_s.size }.join(' ')]] }"
    server = boot(rackup: rackup, config: "workers 0")
    path = "/?#{"q" * 10_240}"
    assert_equal "10240 81920", server.get(path, headers: { "X" => "v" * 81_920 }).body
    # nghttp sends no more.
    assert_equal "10240 50000", nghttp("-H", "x: #{"v" * 50_000}", "http://127.0.0.1:#{server.port}#{path}")
    many = (1..900).to_h { |at| ["x-#{at}", "1"] }
    assert_equal 200, server.get("/", headers: many).status
    assert_equal 414, server.get("/?#{"q" * 12_288}").status
    server.wait_line(/answered 414 to 127.0.0.1: the path has 1 bytes, the query 12289 bytes; uri_bytes_max is 12288/)
    assert_equal 0, server.stop
  end

  def test_files_of_a_directory
    server = boot(config: "workers 0\nweb { static \"public\" }") { |one| one.write("public/a.txt", "file " * 50_000) }
    base = "http://127.0.0.1:#{server.port}"
    assert_equal "file " * 50_000, nghttp("#{base}/a.txt")
    assert_equal "le ", nghttp("-H", "range: bytes=2-4", "#{base}/a.txt")
    assert_equal "hello", nghttp("#{base}/other")
    assert_equal 0, server.stop
  end

  def test_a_phased_restart_loses_no_request
    server = serve("workers 2")
    answered = Queue.new
    stopping = false
    url = "https://127.0.0.1:#{port(server)}/"
    clients = Array.new(3) do
      Thread.new { answered << nghttp("-nv", "-m", "30", url).scan(/:status: 200/).size until stopping }
    end
    [1, 2].each do |count|
      server.signal("USR1")
      server.wait_line(/phased restart done/, count: count)
    end
    so_far = answered.size
    server.eventually("connections are answered again") { answered.size > so_far + 6 }
    stopping = true
    clients.each(&:join)
    assert_equal [30], Array.new(answered.size) { answered.pop }.uniq
    assert_equal 0, server.stop
  end

  private

  # Passes the bytes of a connection on, until one side ends it.
  #
  # @return [Array<Integer>] the sizes of the records of application data that the server sent
  def relayed_records(client, port)
    server = TCPSocket.new("127.0.0.1", port)
    upload = Thread.new { until_end { IO.copy_stream(client, server) && server.close_write } }
    sizes = []
    until_end do
      while (head = server.read(5))
        type, size = head.unpack("Cx2n")
        sizes << size if type == 23
        client.write(head, server.read(size))
      end
      client.close_write
    end
    upload.join
    [client, server].each(&:close)
    sizes
  end

  def until_end
    yield
  rescue Errno::EPIPE, Errno::ECONNRESET, Errno::ENOTCONN
    nil
  end

  def nghttp(*arguments)
    IO.popen(["nghttp", "--timeout=60", *arguments, { err: File::NULL }], "rb", &:read)
  end
end
