# frozen_string_literal: true

require "test_helper"
require "json"
require "support/raw_client"
require "support/server"

# Every line of the log about a request names it, whichever thread writes it.
class RequestIdTest < Minitest::Test
  include ServerTest

  # `/native` stays in C without letting go of the GVL, until the test opens the pipe.
  APP = <<~RUBY
    require "fiddle"
    require "chaton/logger"
    LOGGER = Chaton::Logger.new
    NATIVE_OPEN = Fiddle::Function.new(
      Fiddle::Handle::DEFAULT["open"], [Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true
    )
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/rails" then env["action_dispatch.request_id"] = "of-rails"
      when "/native" then NATIVE_OPEN.call("fifo", 0)
      when "/sleep" then sleep 0.01 until File.exist?("open")
      end
      LOGGER.warn("said by the application\\nin two lines")
      raise "no luck" if env["PATH_INFO"] == "/raise"
      [200, {}, ["fine"]]
    end)
  RUBY

  def setup = needs_gems("fiddle")

  def test_lines_of_the_server_and_of_the_application_have_the_clients_id
    server = boot(rackup: APP, config: "workers 0\nlog_format :json\nweb { access_log :json }")
    ask(server, "/raise", "a\"b")
    assert_equal 0, server.stop
    lines = server.log.lines.map { |line| JSON.parse(line) }
    named = lines.select { |line| line["request_id"] == "a\"b" }
    assert_equal ["said by the application", "the application failed", "request"], named.map { |line| line["message"] }
    assert_equal ["in two lines"], named.first["backtrace"]
    assert_equal "/raise", named.last["target"]
  end

  def test_without_one_rails_or_the_server_makes_it
    server = boot(rackup: APP, config: "workers 0\nweb { access_log :json }")
    %w[/rails /].each { |path| ask(server, path) }
    assert_equal 0, server.stop
    said = server.log.lines.grep(/said by the application/).map { |line| line[/request_id=(\S+)/, 1] }
    own = server.log[%r{"target":"/",.*"request_id":"([^"]+)"}, 1]
    assert_equal ["of-rails", own], said
    assert_match(/\A#{server.pid}-\d+\z/, own)
  end

  def test_lines_about_late_requests_have_it
    server = boot(rackup: APP, config: "workers 0\nlog_format :json\nweb { timeout 2 }")
    ask(server, "/sleep", "slow-1")
    late = JSON.parse(server.wait_line(/request is late: answered 503/))
    assert_equal ["GET /sleep", "slow-1"], late.values_at("what", "request_id")
    server.write("open", "")
    File.mkfifo(server.path("fifo"))
    ask(server, "/native", "slow-2")
    written_by_rust = JSON.parse(server.wait_line(%r{"late: GET /native}))
    assert_equal ["warn", "slow-2"], written_by_rust.values_at("level", "request_id")
    assert_match(%r{\Alate: GET /native has been running}, written_by_rust["message"])
    # Its other end: the call returns.
    File.open(server.path("fifo"), "w").close
    assert_equal 0, server.stop
    server.log.each_line { |line| JSON.parse(line) }
  end

  private

  def ask(server, path, id = nil)
    header = "X-Request-Id: #{id}\r\n" if id
    RawClient.exchange(server.port, "GET #{path} HTTP/1.1\r\nHost: h\r\n#{header}Connection: close\r\n\r\n")
  end
end
