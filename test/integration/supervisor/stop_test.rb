# frozen_string_literal: true

require "test_helper"
require "support/server"

# Ways to end, gentle and not.
class StopTest < Minitest::Test
  include ServerTest

  SLOW = <<~RUBY
    run(lambda do |env|
      sleep env["PATH_INFO"].delete_prefix("/").to_f
      [200, { "content-type" => "text/plain" }, ["done"]]
    end)
  RUBY

  def test_term_answers_accepted_requests
    server = boot(rackup: SLOW, config: "workers 2\nthreads 1..8")
    clients = Array.new(8) { HttpClient.new(server.port).connect }
    answers = clients.map { |client| Thread.new { client.get("/3") } }
    server.eventually("all requests run") { server.status["workers"].sum { |worker| worker["running"] } == 8 }
    server.signal("TERM")
    responses = answers.map(&:value)
    assert_equal ["done"], responses.map(&:body).uniq
    assert_equal ["close"], responses.map { |response| response.headers["connection"] }.uniq
    assert_equal 0, server.wait_exit
    server.wait_all_gone
  end

  def test_term_under_load_loses_no_accepted_request
    server = boot(config: "workers 2")
    load = ClientLoad.new(server.port)
    server.eventually("some load") { load.answered > 500 }
    server.signal("TERM")
    assert_equal 0, server.wait_exit
    load.stop
    # What was refused at the door was not accepted; nothing else may fail.
    assert_empty load.failures.grep_v(/ECONNREFUSED/).grep_v(/ECONNRESET/)
  end

  def test_the_second_int_does_not_wait
    server = boot(rackup: SLOW, config: "workers 1\nshutdown_timeout_s 30")
    client = Thread.new { server.get("/25") rescue nil } # rubocop:disable Style/RescueModifier
    server.eventually("the request runs") { server.status["workers"].sum { |worker| worker["running"] } == 1 }
    server.signal("INT")
    server.wait_line(/stopping when running work is finished/)
    assert server.alive?
    assert_equal 0, server.stop("INT", timeout_s: 10)
    server.wait_all_gone
  ensure
    client&.join
  end

  def test_work_past_the_deadline_is_given_up_with_its_backtrace
    server = boot(rackup: SLOW, config: "workers 1\nshutdown_timeout_s 0.5")
    client = Thread.new { server.get("/25") rescue nil } # rubocop:disable Style/RescueModifier
    server.eventually("the request runs") { server.status["workers"].sum { |worker| worker["running"] } == 1 }
    assert_equal 0, server.stop("TERM", timeout_s: 10)
    assert_match(/config\.ru:2/, server.log)
  ensure
    client&.join
  end

  def test_a_worker_that_cannot_boot_yet_does_not_hold_up_the_end
    server = launch(config: "workers 1\non_worker_boot { File.write(\"booting\", \"\"); sleep }")
    server.eventually("the hook runs") { File.exist?(server.path("booting")) }
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  def test_the_control_socket_stops_too
    server = boot(config: "workers 1")
    assert_equal server.pid, server.control("stop")["pid"]
    assert_equal 0, server.wait_exit
    refute_path_exists server.path("tmp/chaton.sock")
  end
end
