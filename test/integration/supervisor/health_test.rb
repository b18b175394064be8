# frozen_string_literal: true

require "test_helper"
require "support/server"

# Only a worker in which no Ruby code can run is killed; a busy one is not.
class HealthTest < Minitest::Test
  include ServerTest

  def setup = needs_gems("fiddle")

  ALIVE_TIMEOUT_S = 1

  HOG_S = 60

  # `/hog` calls sleep(3) of the C library without letting go of the GVL.
  APP = <<~RUBY.freeze
    require "fiddle"
    hog = Fiddle::Function.new(Fiddle::Handle::DEFAULT["sleep"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/hog" then hog.call(#{HOG_S})
      when "/block" then sleep 8
      end
      [200, { "content-type" => "text/plain" }, ["done"]]
    end)
  RUBY

  def test_blocked_threads_are_no_reason_to_kill
    server = boot(rackup: APP, config: "workers 1\nthreads 2..2\nalive_timeout_s #{ALIVE_TIMEOUT_S * 3}")
    pids = server.workers
    answers = Array.new(2) { Thread.new { server.get("/block").body } }
    assert_equal %w[done done], answers.map(&:value)
    assert_equal pids, server.workers
    refute_match(/worker killed/, server.log)
    assert_equal 0, server.stop
  end

  def test_a_hogged_gvl_is
    server = boot(rackup: APP, config: "workers 1\nalive_timeout_s #{ALIVE_TIMEOUT_S}")
    pid = server.workers.first
    begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    client = Thread.new { server.get("/hog") rescue "lost" } # rubocop:disable Style/RescueModifier
    server.wait_line(/worker killed: no Ruby thread of it got the GVL for .*its Rust side answers/)
    took_s = Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
    assert_operator took_s, :>=, ALIVE_TIMEOUT_S * 0.75
    assert_operator took_s, :<, HOG_S / 2
    assert_equal "lost", client.value
    server.wait_line(/worker ready/, count: 2)
    refute_equal pid, server.workers.first
    assert_equal "done", server.get.body
    assert_equal 0, server.stop
  end

  def test_a_stopped_process_is_distinguished_from_a_held_gvl
    server = boot(rackup: APP, config: "workers 1\nalive_timeout_s #{ALIVE_TIMEOUT_S}")
    server.signal("STOP", server.workers.first)
    server.wait_line(/worker killed: .*nothing in it answers/)
    server.wait_line(/worker ready/, count: 2)
    assert_equal 0, server.stop
  end

  def test_in_development_no_worker_is_killed
    server = boot(rackup: APP, config: "workers 1\nenvironment \"development\"", env: { "RACK_ENV" => nil })
    pid = server.workers.first
    server.signal("STOP", pid)
    # Two of the pings a timeout of one second would have sent.
    server.eventually("the supervisor answers") { server.status["state"] == "running" }
    server.signal("CONT", pid)
    assert_equal "done", server.get.body
    refute_match(/worker killed/, server.log)
    assert_equal 0, server.stop
  end
end
