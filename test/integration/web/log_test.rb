# frozen_string_literal: true

require "test_helper"
require "json"
require "time"
require "support/raw_client"
require "support/server"

# The access log of a real server.
class LogTest < Minitest::Test
  include ServerTest

  APP = <<~RUBY
    run(lambda do |env|
      raise "no luck" if env["PATH_INFO"] == "/raise"
      [env["PATH_INFO"] == "/missing" ? 404 : 200, { "content-type" => "text/plain" }, ["hello"]]
    end)
  RUBY

  COMMON = %r{
    \A127\.0\.0\.1[ ]-[ ]-[ ]\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d[ ]\+0000\][ ]
    "(?<request>[^"]*)"[ ](?<status>\d{3})[ ](?<bytes>\d+)[ ]\d+\.\d\n\z
  }x

  # request => [status, bytes of the body]
  REQUESTS = {
    "GET /?a=b HTTP/1.1" => [200, 5], "HEAD /head HTTP/1.1" => [200, 0], "POST /post HTTP/1.1" => [200, 5],
    "GET /missing HTTP/1.1" => [404, 5], "GET /old HTTP/1.0" => [200, 5], "GET /raise HTTP/1.1" => [500, 22]
  }.freeze

  def test_common
    server = drive("workers 0\nweb { access_log :common }")
    lines = server.log.lines.filter_map { |line| COMMON.match(line) }
    seen = lines.to_h { |line| [line[:request], [line[:status].to_i, line[:bytes].to_i]] }
    assert_equal REQUESTS, seen.slice(*REQUESTS.keys)
  end

  def test_refused_requests_are_logged
    server = boot(rackup: APP, config: "workers 0\nweb { access_log :common }")
    RawClient.exchange(server.port, "\"GET \" / HTTP/1.1\r\n\r\n")
    line = server.wait_line(/" 400 /)
    assert_equal ["-", "400"], COMMON.match(line).values_at(:request, :status)
    assert_equal 0, server.stop
  end

  # It ends early because its client leaves or the application takes its connection over.
  def test_a_request_that_ends_early_is_logged
    app = <<~RUBY
      run(lambda do |env|
        case env["PATH_INFO"]
        when "/partial" then [200, { "rack.hijack" => :close.to_proc }, []]
        when "/upgrade" then [101, { "connection" => "upgrade", "upgrade" => "x" }, :close.to_proc]
        when "/waits" then warn("it runs") || sleep
        else [200, {}, ["x" * 50_000_000]]
        end
      end)
    RUBY
    server = boot(rackup: app, config: "workers 0\nshutdown_timeout_s 0.1\nweb { access_log :common }")
    %w[/partial /upgrade].each { |path| RawClient.exchange(server.port, "GET #{path} HTTP/1.1\r\nHost: h\r\n\r\n") }
    RawClient.open(server.port) { |one| one.write("GET /large HTTP/1.1\r\nHost: h\r\n\r\n").read_some(100) }
    RawClient.open(server.port) do |one|
      one.write("GET /waits HTTP/1.1\r\nHost: h\r\n\r\n")
      server.wait_line(/it runs/)
      one.close(reset: true)
    end
    ["partial 200", "upgrade 101", "large 200", "waits 499"].each do |line|
      path, status = line.split
      server.wait_line(%r{/#{path} HTTP/1.1" #{status} })
    end
    server.stop
  end

  # Whatever a client sends, one request is one line, and it parses.
  def test_no_line_can_be_forged
    target = "/%22%0a\xe2\x82\xac\\".b
    %i[common json].each do |form|
      server = boot(rackup: APP, config: "workers 0\nweb { access_log :#{form} }")
      RawClient.exchange(server.port, "GET #{target} HTTP/1.0\r\n\r\n".b)
      line = server.wait_line(/GET.* 200 |"method":"GET"/)
      form == :json ? assert_equal(200, JSON.parse(line)["status"]) : assert_match(COMMON, line)
      assert_equal 0, server.stop
    end
  end

  def test_json
    server = drive("workers 0\nweb { access_log :json }")
    lines = server.log.lines.grep(/"target"/).map { |line| JSON.parse(line) }
    seen = lines.to_h { |line| [line.values_at("method", "target", "version").join(" "), line["status"]] }
    assert_equal REQUESTS.transform_values(&:first), seen.slice(*REQUESTS.keys)
    assert(lines.all? { |line| Time.iso8601(line["time"]) && line["remote"] == "127.0.0.1" })
  end

  # Every line of both logs, of the supervisor and of the workers, is JSON.
  def test_log_json_is_json_throughout
    server = drive("workers 2\nweb { access_log :json }", args: ["--log", "json"])
    lines = server.log.lines.map { |line| JSON.parse(line) }
    messages = lines.select { |line| line.key?("message") }
    assert_includes messages.map { |line| line["message"] }, "ready"
    failure = messages.find { |line| line["reason"] == "no luck" }
    assert_equal ["error", "GET /raise", "RuntimeError"], failure.values_at("level", "request", "error")
    assert_match(/config\.ru:2/, failure["backtrace"].first)
    assert(messages.all? { |line| Time.iso8601(line["time"]) && line["pid"].positive? })
  end

  def test_the_access_log_can_be_switched_off
    server = drive("workers 0")
    assert_empty(server.log.lines.grep(%r{HTTP/1}))
  end

  private

  # Sends every request and ends the server, after which its log is complete.
  def drive(config, **options)
    server = boot(rackup: APP, config: config, **options)
    REQUESTS.each_key do |line|
      RawClient.exchange(server.port, "#{line}\r\nHost: h\r\nConnection: close\r\n\r\n")
    end
    assert_equal 0, server.stop
    server.wait_all_gone
    server
  end
end
