# frozen_string_literal: true

require "test_helper"
require "support/raw_client"
require "support/server"

# Requests that arrive at the same time do not wait for each other.
class TogetherTest < Minitest::Test
  include ServerTest

  CLIENTS = 6

  # Holds every request until the file "open" is there.
  APP = <<~RUBY
    run(lambda do |env|
      sleep 0.01 until env["PATH_INFO"] == "/quick" || File.exist?("open")
      [200, { "content-type" => "text/plain" }, ["done"]]
    end)
  RUBY

  def test_requests_that_block_get_a_thread_each
    server = boot(rackup: APP, config: "threads 1..8")
    clients = arrive_together(server)
    server.eventually("all of them run") { server.status["workload"]["running"].size == CLIENTS }
    assert_equal "done", server.get("/quick").body
    server.write("open", "")
    assert_equal ["done"], clients.map { |client| client.read_response.body }.uniq
    clients.each(&:close)
    assert_equal 0, server.stop
  end

  # Each request waits until all of them run. It gives up long before the pool would start the rest because others end.
  MEETING = 40
  MEETING_APP = <<~RUBY.freeze
    lock = Mutex.new
    all_here = ConditionVariable.new
    here = 0
    run(lambda do |_env|
      lock.synchronize do
        all_here.broadcast if (here += 1) == #{MEETING}
        all_here.wait(lock, 4) if here < #{MEETING}
        [200, { "content-type" => "text/plain" }, [here == #{MEETING} ? "met" : "alone"]]
      end
    end)
  RUBY

  def test_long_requests_all_begin_at_once_on_a_cold_server
    server = boot(rackup: MEETING_APP, config: "threads 1..64")
    clients = Array.new(MEETING) { RawClient.new(server.port).write("GET / HTTP/1.1\r\nHost: h\r\n\r\n") }
    assert_equal ["met"], clients.map { |client| client.read_response.body }.uniq
    clients.each(&:close)
    assert_equal 0, server.stop
  end

  private

  # A stopped process finds everything at once when it goes on.
  def arrive_together(server)
    clients = Array.new(CLIENTS) { RawClient.new(server.port) }
    server.eventually("they are accepted") { server.status["workload"]["web"]["connections"] == CLIENTS }
    server.signal("STOP")
    clients.each { |client| client.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n") }
  ensure
    server.signal("CONT")
  end
end
