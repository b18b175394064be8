# frozen_string_literal: true

require "test_helper"
require "support/server"

# `workers 0`: the same signals, no fork.
class SingleTest < Minitest::Test
  include ServerTest

  SLOW = <<~RUBY
    run(lambda do |env|
      sleep env["PATH_INFO"].delete_prefix("/").to_f
      [200, { "content-type" => "text/plain" }, ["done"]]
    end)
  RUBY

  def test_one_process_serves_and_leaves
    server = boot(config: "workers 0\npidfile \"tmp/server.pid\"")
    assert_equal "hello", server.get.body
    assert_equal server.pid, server.read("tmp/server.pid").to_i
    assert_empty File.read("/proc/#{server.pid}/task/#{server.pid}/children")
    status = server.status
    assert_equal %w[single running], status.values_at("mode", "state")
    assert_kind_of Hash, status["workload"]
    assert_equal 0, server.stop
    refute_path_exists server.path("tmp/server.pid")
    refute_path_exists server.path("tmp/chaton.sock")
  end

  def test_term_answers_accepted_requests
    server = boot(rackup: SLOW, config: "workers 0")
    answer = Thread.new { server.get("/2") }
    server.eventually("the request runs") { server.status["workload"]["running"].size == 1 }
    server.signal("TERM")
    assert_equal "done", answer.value.body
    assert_equal 0, server.wait_exit
  end

  def test_the_second_int_does_not_wait
    server = boot(rackup: SLOW, config: "workers 0\nshutdown_timeout_s 30")
    client = Thread.new { server.get("/25") rescue nil } # rubocop:disable Style/RescueModifier
    server.eventually("the request runs") { server.status["workload"]["running"].size == 1 }
    server.signal("INT")
    server.wait_line(/stopping when running work is finished/)
    assert_equal 0, server.stop("INT", timeout_s: 10)
    assert_match(/thread at immediate stop/, server.log)
  ensure
    client&.join
  end

  def test_usr1_and_usr2_start_again_under_the_same_pid
    server = boot(rackup: "run ->(_) { [200, {}, [\"0\"]] }", config: "workers 0")
    %w[USR1 USR2].each.with_index(1) do |signal, round|
      server.write("config.ru", "run ->(_) { [200, {}, [\"#{round}\"]] }")
      server.signal(signal)
      server.wait_line(/ ready  listen=/, count: round + 1)
      assert_equal round.to_s, server.get.body
    end
    assert_equal 0, server.stop
  end

  def test_there_are_no_workers_to_add
    server = boot(config: "workers 0")
    server.signal("TTIN")
    server.wait_line(/no workers to add or remove/)
    assert_equal 0, server.stop
  end

  def test_an_app_that_does_not_load_is_named
    server = launch(rackup: "this is no ruby(", config: "workers 0")
    assert_equal 1, server.wait_exit
    assert_match(/config\.ru/, server.log)
  end

  def test_a_taken_port_is_named
    taken = TCPServer.new("127.0.0.1", 0)
    server = launch(config: "workers 0\nbind \"tcp://127.0.0.1:#{taken.addr[1]}\"")
    assert_equal 1, server.wait_exit
    assert_match(/#{taken.addr[1]} is in use/, server.log)
  ensure
    taken&.close
  end
end
