# frozen_string_literal: true

require "test_helper"
require "support/server"

# What a server says at boot about the Ruby it runs on.
class RubyReleaseServerTest < Minitest::Test
  include ServerTest

  # Computes for a second, or responds at once.
  APP = <<~RUBY
    run lambda { |env|
      ending = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 1
      nil while env["PATH_INFO"] == "/compute" && Process.clock_gettime(Process::CLOCK_MONOTONIC) < ending
      [200, { "content-type" => "text/plain" }, ["hello"]]
    }
  RUBY

  # Computes until another request ends it.
  ENDLESS = <<~RUBY
    over = false
    run lambda { |env|
      over = true if env["PATH_INFO"] == "/end"
      nil until over || env["PATH_INFO"] != "/compute"
      [200, { "content-type" => "text/plain" }, ["hello"]]
    }
  RUBY

  # A server in a Ruby that calls itself a release of the future.
  def boot_newer(env: {}, **rest)
    boot(env: { "RUBYOPT" => "-r./newer", "CHATON_UNTRIED_RUBY" => nil, **env }, rackup: APP, **rest) do |server|
      server.write("newer.rb", "Object.send(:remove_const, :RUBY_VERSION)\nRUBY_VERSION = \"9.9.0\"\n")
    end
  end

  def pool(server) = server.status.dig("workload", "pool")

  # Requests while a thread computes.
  def compete(server)
    busy = Thread.new { server.get("/compute") }
    server.eventually("it computes") { pool(server)["running"] == 1 }
    assert_equal %w[hello hello], [server.get("/"), busy.value].map(&:body)
  end

  def test_a_ruby_newer_than_any_that_was_tried_gets_one_warning_and_serves_without_unstable_calls
    server = boot_newer(config: "memory { profile true }")
    assert_equal 1, server.log.scan("WARN  Ruby 9.9.0 is newer than").size
    compete(server)
    assert_equal 0, pool(server)["preemptions"]
    refute_match(/tracing allocations/, server.log)
    assert_equal 0, server.stop
  end

  def test_unstable_calls_can_be_switched_on
    server = boot_newer(env: { "CHATON_UNTRIED_RUBY" => "1" })
    refute_match(/WARN/, server.log)
    compete(server)
    assert_operator pool(server)["preemptions"], :>, 0
    assert_equal 0, server.stop
  end

  # Ruby 3.3 cannot keep a thread on its native thread; before, the variable means nothing.
  def test_requests_are_served_beside_an_endless_one_when_ruby_threads_share_native_threads
    server = launch(rackup: ENDLESS, env: { "RUBY_MN_THREADS" => "1" })
    return server.wait_line(/RUBY_MN_THREADS=1 cannot be used with Ruby 3\.3/) if RUBY_VERSION.start_with?("3.3.")

    server.ready
    busy = Thread.new { server.get("/compute") }
    server.eventually("it computes") { pool(server)["running"] == 1 }
    bodies = Array.new(20) { server.get("/").body }
    assert_equal ["hello"] * 22, [*bodies, server.get("/end").body, busy.value.body]
    assert_equal 0, server.stop
  end

  # Ruby itself reports the sizes of its heap when it runs with -w.
  def test_no_file_of_ours_gives_a_warning_of_ruby
    config = "workers 1\njobs { }\nstreams { topic \"events\" }\nwarm_up { |client| client.get \"/\" }"
    server = boot(rackup: APP, env: { "RUBYOPT" => "-w -W:deprecated" }, config: config)
    assert_equal "hello", server.get.body
    server.signal("USR1")
    server.wait_line(/phased restart done/)
    assert_equal 0, server.stop
    assert_empty server.log.lines.grep(/#{Regexp.escape(Server::LIB)}.*warning:/)
  end
end
