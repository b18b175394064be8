# frozen_string_literal: true

require_relative "workload_case"
require "rack"

# The Rack env of a request.
class EnvTest < Minitest::Test
  include WorkloadCase

  def env_of(request, **options)
    seen = nil
    port = serve(**options) do |env|
      body = env["rack.input"].read
      seen = env.merge("body" => body, "again" => env["rack.input"].rewind && env["rack.input"].read)
      [200, {}, []]
    end
    exchange(port, request)
    seen
  end

  def test_the_request_line
    env = env_of("GET /a%20b/c?d=e&f HTTP/1.0\r\n\r\n")
    assert_equal ["GET", "/a%20b/c", "d=e&f", "/a%20b/c?d=e&f", "HTTP/1.0", "", "127.0.0.1"],
                 env.values_at("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "REQUEST_URI", "SERVER_PROTOCOL",
                               "SCRIPT_NAME", "REMOTE_ADDR")
  end

  def test_headers
    env = env_of("GET / HTTP/1.1\r\nHost: example.org:81\r\nX-Made-Up: 1\r\nACCEPT: a\r\naccept: b\r\n" \
                 "Cookie: a=1\r\nCookie: b=2\r\nX_Under: 1\r\nX-Dash: 2\r\nX_Dash: 3\r\nVersion: 9\r\n\r\n")
    expected = { "HTTP_HOST" => "example.org:81", "SERVER_NAME" => "example.org", "SERVER_PORT" => "81",
                 "HTTP_X_MADE_UP" => "1", "HTTP_ACCEPT" => "a, b", "HTTP_COOKIE" => "a=1; b=2", "HTTP_X_UNDER" => "1",
                 "HTTP_X_DASH" => "2" }
    assert_equal expected, env.slice(*expected.keys)
  end

  def test_http_version_is_the_protocol_before_rack_3_1_and_then_a_header
    header = "GET / HTTP/1.1\r\nHost: x\r\nVersion: 9\r\n\r\n"
    none = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    protocol = %w[HTTP/1.1 HTTP/1.1]
    { "2.2.9" => protocol, "3.0.18" => protocol, "3.1.0" => ["9", nil] }.each do |rack, versions|
      seen = Rack.stub(:release, rack) { [header, none].map { |request| env_of(request)["HTTP_VERSION"] } }
      assert_equal versions, seen, rack
    end
  end

  def test_two_content_types_are_joined
    env = env_of("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\ncontent-type: c/d\r\nContent-Length: 0\r\n\r\n")
    assert_equal "a/b, c/d", env["CONTENT_TYPE"]
  end

  def test_an_empty_host_is_as_none
    env = env_of("GET / HTTP/1.1\r\nHost:\r\n\r\n")
    refute env.key?("HTTP_HOST")
    assert_equal "127.0.0.1", env["SERVER_NAME"]
  end

  def test_a_newer_minor_version_is_read_as_1_1
    env = env_of("GET /a HTTP/1.2\r\nHost: x\r\n\r\n")
    assert_equal ["HTTP/1.1", "/a"], env.values_at("SERVER_PROTOCOL", "PATH_INFO")
  end

  def test_strings_may_be_changed_in_place
    env = env_of("GET /path?query HTTP/1.1\r\nHost: x\r\n\r\n")
    %w[PATH_INFO QUERY_STRING REQUEST_URI REQUEST_PATH HTTP_HOST].each do |key|
      refute env[key].frozen?, key
    end
  end

  # As with Puma.
  def test_what_is_the_same_is_one_string
    seen = []
    port = serve { |env| seen.push(env) && [200, {}, []] }
    connect(port) { |client| 2.times { client.get("/path") } }
    %w[SCRIPT_NAME QUERY_STRING REMOTE_ADDR REQUEST_METHOD SERVER_PROTOCOL].each do |key|
      assert_same(*seen.map { |env| env[key] }, key)
      assert_predicate seen[0][key], :frozen?, key
    end
    assert_same seen[0]["REQUEST_PATH"], seen[0]["PATH_INFO"]
    assert_equal ["", "", "GET", "HTTP/1.1"],
                 seen[0].values_at("SCRIPT_NAME", "QUERY_STRING", "REQUEST_METHOD", "SERVER_PROTOCOL")
  end

  def test_many_headers
    names = Array.new(60) { |at| "X-H#{at}" }
    env = env_of("GET / HTTP/1.1\r\nHost: x\r\n#{names.map { |name| "#{name}: #{name}\r\n" }.join}\r\n")
    assert_equal names, env.values_at(*names.map { |name| "HTTP_#{name.upcase.tr("-", "_")}" })
    assert_equal 61, env.keys.grep(/\AHTTP_(?!VERSION)/).size
    assert_empty env.keys.grep_v(String)
  end

  def test_what_is_not_the_usual_is_set
    env = env_of("DELETE /a?b HTTP/1.0\r\nHost: x\r\n\r\n")
    assert_equal %w[DELETE b HTTP/1.0], env.values_at("REQUEST_METHOD", "QUERY_STRING", "SERVER_PROTOCOL")
  end

  def test_names_of_one_key_are_joined
    env = env_of("GET / HTTP/1.1\r\nHost: x\r\nA-B_C: 1\r\nA_B-C: 2\r\nX: 1\r\nY: 2\r\nx: 3\r\nX: 4\r\n\r\n")
    assert_equal ["1, 2", "1, 3, 4", "2"], env.values_at("HTTP_A_B_C", "HTTP_X", "HTTP_Y")
  end

  def test_a_body_in_memory
    env = env_of("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello")
    assert_equal %w[5 text/plain hello hello], env.values_at("CONTENT_LENGTH", "CONTENT_TYPE", "body", "again")
    refute env.key?("HTTP_CONTENT_LENGTH")
    assert_equal Encoding::BINARY, env["body"].encoding
  end

  def test_a_chunked_body_has_its_length
    env = env_of("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")
    assert_equal %w[5 hello hello], env.values_at("CONTENT_LENGTH", "body", "again")
    refute env.key?("HTTP_TRANSFER_ENCODING")
  end

  def test_a_body_in_a_file
    text = "0123456789" * 10_000
    env = env_of("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: #{text.size}\r\n\r\n#{text}",
                 web: { body_memory_bytes_max: 1_000 })
    assert_kind_of File, env["rack.input"]
    assert_equal [text, text], env.values_at("body", "again")
  end

  def test_no_body
    env = env_of("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_equal ["", "", nil], env.values_at("body", "again", "CONTENT_LENGTH")
    assert_nil env["rack.input"].read(10)
  end

  def test_requests_do_not_share_what_they_change
    port = serve do |env|
      env["PATH_INFO"] << "x"
      env["rack.after_reply"] << -> {}
      env["mine"] = true
      [200, {}, [[env["PATH_INFO"], env["rack.after_reply"].size].join(" ")]]
    end
    connect(port) do |client|
      3.times { assert_equal "/ax 1", client.get("/a").body }
    end
  end
end
