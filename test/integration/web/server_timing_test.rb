# frozen_string_literal: true

require "test_helper"
require "support/server"

# What the tools of browsers show of a request.
class ServerTimingTest < Minitest::Test
  include ServerTest

  APP = <<~RUBY
    run lambda { |env|
      sleep 0.02
      headers = env["PATH_INFO"] == "/own" ? { "server-timing" => "db;dur=1" } : {}
      body = env["PATH_INFO"] == "/stream" ? ->(stream) { stream.write("x"); stream.close } : ["x"]
      [200, headers, body]
    }
  RUBY

  def test_answers_tell_how_long_they_took
    server = boot(rackup: APP, config: "workers 0\nweb { server_timing true }")
    %w[/ /stream].each do |path|
      timing = server.get(path).headers["server-timing"]
      assert_match(/\Aqueue;dur=\d+\.\d\d, app;dur=\d+\.\d\d\z/, timing)
      # As long as the application has slept, at least.
      assert_operator timing[/app;dur=(.*)/, 1].to_f, :>=, 19.0, path
    end
    assert_match(/\Adb;dur=1\nqueue;dur=.*, app;dur=/, server.get("/own").headers["server-timing"])
    asked = { "X-Request-Start" => "t=#{Time.now.to_f - 100}" }
    queue = server.get("/", headers: asked).headers["server-timing"][/queue;dur=([\d.]+)/, 1].to_f
    assert_operator queue, :>=, 99_000, "the time before the request came here counts"
    assert_equal 0, server.stop
  end

  def test_without_the_setting_they_do_not
    server = boot(rackup: APP, config: "workers 0")
    assert_nil server.get("/").headers["server-timing"]
    assert_equal 0, server.stop
  end
end
