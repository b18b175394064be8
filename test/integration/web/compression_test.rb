# frozen_string_literal: true

require "test_helper"
require "zlib"
require "support/http_client"
require "support/server"

# Answers of the application that are compressed on their way out.
class CompressionTest < Minitest::Test
  include ServerTest

  APP = <<~'RUBY'
    page = Array.new(2_000) { |i| "<li>line #{i}</li>\n" }
    html = { "content-type" => "text/html", "etag" => '"strong"' }
    parts = Enumerator.new do |all|
      all << "first "
      sleep 0.01 until File.exist?("go")
      all << "last" << "." * 100_000
    end
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/page" then [200, html, page]
      when "/one" then [200, html, [page.join]]
      when "/each" then [200, html, page.each_slice(10).lazy.map(&:join)]
      when "/parts" then [200, html, parts]
      when "/call" then [200, html, ->(stream) { page.each { |line| stream.write(line) }; stream.close }]
      when "/off" then [200, { **html, "x-chaton-compress" => "off" }, page]
      when "/file" then [200, { "content-type" => "text/plain" }, File.open("config.ru")]
      else [200, html, ["small"]]
      end
    end)
  RUBY
  PAGE = Array.new(2_000) { |i| "<li>line #{i}</li>\n" }.join
  GZIP = { "Accept-Encoding" => "deflate, gzip;q=0.9, br" }.freeze

  def test_clients_that_accept_gzip_get_it
    server = boot_compressing
    HttpClient.open(server.port) do |client|
      %w[/page /one /each /call].each do |path|
        answer = client.get(path, headers: GZIP)
        assert_equal ["gzip", "Accept-Encoding", 'W/"strong"'], told(answer), path
        # A stream is flushed after each of its many parts.
        assert_operator answer.body.bytesize, :<, PAGE.bytesize / 3 if %w[/page /one].include?(path)
        assert_equal PAGE, Zlib.gunzip(answer.body), path
        plain = client.get(path)
        assert_equal [nil, "Accept-Encoding", '"strong"', PAGE], [*told(plain), plain.body], path
      end
      length = client.get("/page", headers: GZIP).then { |it| [it.headers["content-length"], it.body.bytesize.to_s] }
      assert_equal length.first, length.last
    end
    assert_equal 0, server.stop
  end

  def test_others_are_sent_as_they_are
    server = boot_compressing
    HttpClient.open(server.port) do |client|
      off = client.get("/off", headers: GZIP)
      assert_equal [nil, PAGE, nil], [off.headers["content-encoding"], off.body, off.headers["x-chaton-compress"]]
      assert_equal ["small", nil], client.get("/", headers: GZIP).then { |it| [it.body, it.headers["vary"]] }
      assert_equal APP, client.get("/file", headers: GZIP).body
    end
    assert_equal 0, server.stop
  end

  def test_parts_of_a_stream_arrive_when_they_are_there
    server = boot_compressing
    TCPSocket.open("127.0.0.1", server.port) do |socket|
      socket.write("GET /parts HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n")
      rest = read_head(socket)
      inflate = Zlib::Inflate.new(16 + Zlib::MAX_WBITS)
      text = inflate.inflate(rest)
      text << inflate.inflate(read_some(socket)) until text == "first "
      server.write("go", "")
      text << inflate.inflate(read_some(socket)) until inflate.finished?
      assert_equal "first last#{"." * 100_000}", text
    end
    assert_equal 0, server.stop
  end

  def test_it_is_off_unless_set
    server = boot(rackup: APP, config: "workers 0")
    answer = server.get("/page", headers: GZIP)
    assert_equal [nil, nil, '"strong"', PAGE], [*told(answer), answer.body]
    assert_equal 0, server.stop
  end

  private

  def boot_compressing = boot(rackup: APP, config: "workers 0\nweb { compress true }")

  def told(answer) = answer.headers.values_at("content-encoding", "vary", "etag")

  # An answer to HTTP/1.0 ends with its connection, so its body has no chunks.
  #
  # @return [String] what has arrived of the body
  def read_head(socket)
    received = +"".b
    received << read_some(socket) until received.include?("\r\n\r\n")
    received.split("\r\n\r\n", 2).last
  end

  def read_some(socket)
    raise "nothing arrived" unless socket.wait_readable(60)

    socket.readpartial(65_536)
  end
end
