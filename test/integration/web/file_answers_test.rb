# frozen_string_literal: true

require "test_helper"
require "digest"
require "open3"
require "time"
require_relative "../../support/server"

# A file is answered alike whether it is static, a body with `to_path`, or named in X-Sendfile or X-Accel-Redirect.
class FileAnswersTest < Minitest::Test
  include ServerTest

  APP = <<~RUBY
    require "rack"
    file = File.expand_path("storage/film.bin", __dir__)
    type = { "content-type" => "text/csv", "content-disposition" => "inline" }
    body = Struct.new(:to_path) { def each = yield(File.binread(to_path)) }.new(file)
    # Rails' default with `config.action_dispatch.x_sendfile_header`.
    middleware = Rack::Sendfile.new(->(_env) { [200, type.dup, body] }, "X-Sendfile")
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/to_path" then [200, type, body]
      when "/rack-sendfile" then middleware.call(env)
      when "/x-sendfile" then [200, { **type, "X-Sendfile" => file, "content-length" => "0" }, []]
      when "/x-accel-redirect" then [200, { **type, "x-accel-redirect" => "/film.bin" }, []]
      when "/own" then [200, { **type, "etag" => '"own"', "cache-control" => "private", "x-sendfile" => file }, []]
      when "/part" then [206, { **type, "content-range" => "bytes 0-299999/300001" }, body]
      when "/page" then [404, type, body]
      end
    end)
  RUBY
  KINDS = %w[to_path x-sendfile x-accel-redirect rack-sendfile].freeze
  PROTOCOLS = %w[--http1.1 --http2-prior-knowledge].freeze
  SAME = %w[content-range content-length accept-ranges etag last-modified].freeze
  CONTENT = Random.new(1).bytes(300_000)
  DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
  BEFORE = "Sun, 06 Nov 1994 08:49:36 GMT"

  # What is asked for, and the status of the answer. ETAG stands for the one of the file.
  CASES = {
    [] => 200,
    ["-I"] => 200,
    ["Range: bytes=0-1"] => 206,
    ["Range: bytes=-5"] => 206,
    ["Range: bytes=299999-"] => 206,
    ["Range: bytes=300000-"] => 416,
    ["Range: bytes=0-1,5-6"] => 200,
    ["-I", "Range: bytes=0-1"] => 200,
    ["Range: bytes=7-9", "If-Range: ETAG"] => 206,
    ["Range: bytes=7-9", "If-Range: \"other\""] => 200,
    ["Range: bytes=7-9", "If-Range: #{DATE}"] => 206,
    ["Range: bytes=7-9", "If-Range: #{BEFORE}"] => 200,
    ["If-None-Match: ETAG"] => 304,
    ["-I", "If-None-Match: W/ETAG"] => 304,
    ["If-None-Match: \"other\""] => 200,
    ["If-Modified-Since: #{DATE}"] => 304,
    ["If-Modified-Since: #{BEFORE}"] => 200,
    ["If-Match: \"other\""] => 412,
    ["If-Unmodified-Since: #{BEFORE}", "Range: bytes=0-1"] => 412
  }.freeze

  def test_all_files_are_answered_as_static_ones
    server = boot_with_film
    etag = get(server, "/film.bin", *PROTOCOLS.first)[1]["etag"]
    PROTOCOLS.product(CASES.to_a).each do |protocol, (asked, status)|
      asked = asked.map { |line| line.sub("ETAG", etag) }
      static = get(server, "/film.bin", protocol, *asked)
      assert_equal status, static.first, asked
      KINDS.each do |kind|
        given = get(server, "/#{kind}", protocol, *asked)
        assert_equal expected(static, kind), comparable(given), [kind, protocol, asked]
        assert_own_headers(given, status, [kind, protocol, asked])
      end
    end
    assert_equal 0, server.stop
  end

  def test_what_the_application_has_said_counts
    server = boot_with_film
    assert_equal 304, get(server, "/own", "If-None-Match: \"own\"").first
    status, headers, body = get(server, "/own", "Range: bytes=2-3", "If-Range: \"own\"")
    assert_equal [206, "\"own\"", "private", CONTENT[2, 2]], [status, *headers.values_at("etag", "cache-control"), body]
    status, headers, = get(server, "/own", "Range: bytes=300000-")
    assert_equal [416, nil, nil], [status, *headers.values_at("etag", "cache-control")]
    { "/part" => 206, "/page" => 404 }.each do |path, code|
      status, headers, body = get(server, path, "Range: bytes=2-3", "If-None-Match: *")
      assert_equal [code, nil, CONTENT.size], [status, headers["etag"], body.size]
    end
    status, _, body = get(server, "/to_path", "-XPOST", "Range: bytes=2-3")
    assert_equal [200, CONTENT.size], [status, body.size]
    assert_equal 0, server.stop
  end

  private

  # Files are never compressed on the way, whatever their type.
  def boot_with_film
    config = "workers 0\nweb { static 'public'; sendfile_roots 'storage'; compress true }"
    boot(rackup: APP, config: config) do |new|
      new.write("storage/film.bin", CONTENT)
      FileUtils.mkdir_p(new.path("public"))
      File.link(new.path("storage/film.bin"), new.path("public/film.bin"))
      File.utime(Time.httpdate(DATE), Time.httpdate(DATE), new.path("public/film.bin"))
    end
  end

  # @return [Array(Integer, Hash, String)]
  def get(server, path, *asked)
    flags, lines = asked.partition { |it| it.start_with?("-") }
    lines = ["Accept-Encoding: gzip", *lines].flat_map { |line| ["-H", line] }
    output, = Open3.capture2("curl", "-si", "--max-time", "10", *flags, *lines, "http://127.0.0.1:#{server.port}#{path}",
                             binmode: true)
    head, body = output.split("\r\n\r\n", 2)
    status, *headers = head.lines.map(&:chomp)
    [status[/ (\d+)/, 1].to_i, headers.to_h { |line| line.split(": ", 2) }.transform_keys(&:downcase), body]
  end

  def comparable((status, headers, body)) = [status, headers.slice(*SAME), [body.bytesize, Digest::MD5.hexdigest(body)]]

  # A Last-Modified without Cache-Control would let caches keep what the application did not mean for them.
  def expected(static, kind)
    status, headers, body = comparable(static)
    [status, kind == "to_path" ? headers.except("last-modified") : headers, body]
  end

  def assert_own_headers((_, headers), status, told)
    own = [200, 206].include?(status) ? ["text/csv", "inline", nil, nil] : [nil] * 4
    assert_equal own, headers.values_at("content-type", "content-disposition", "content-encoding", "x-sendfile"), told
  end
end
