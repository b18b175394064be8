# frozen_string_literal: true

require "test_helper"
require "support/server"

# Sudden death of one and the other.
class DeathTest < Minitest::Test
  include ServerTest

  def test_a_killed_worker_is_replaced
    server = boot(config: "workers 2")
    first, second = server.workers
    server.signal("KILL", first)
    server.wait_line(/worker died.*SIGKILL/)
    server.wait_line(/worker ready/, count: 3)
    after = server.workers
    refute_includes after, first
    assert_includes after, second
    assert_equal 2, after.size
    assert_equal(after.sort, server.status["workers"].map { |worker| worker["pid"] }.sort)
    assert_equal "hello", server.get.body
    assert_equal 0, server.stop
  end

  def test_the_place_of_a_dead_worker_is_cleared
    server = boot(config: "workers 2\nconstants_for_tests restart_delay_s: 30.0")
    2.times do |round|
      server.signal("KILL", server.workers.first)
      server.wait_line(/worker died/, count: round + 1)
      server.wait_line(/worker ready/, count: 3) if round.zero?
    end
    # The second death within the window is answered with a delay: one is left.
    assert_equal 1, server.status["workers"].size
    assert_equal "hello", server.get.body
    assert_equal 0, server.stop
  end

  def test_rolling_kills_under_load_harm_only_the_killed
    server = boot(config: "workers 2\nconstants_for_tests restart_delay_s: 0.05")
    load = ClientLoad.new(server.port)
    3.times do |round|
      server.signal("KILL", server.workers.first)
      server.wait_line(/worker ready/, count: 3 + round)
    end
    load.stop
    # A client loses at most the one request that was in the killed worker.
    assert_operator load.failures.size, :<=, 3 * 4
    assert_empty load.failures.grep(/ECONNREFUSED/)
    assert_equal 0, server.stop
  end

  def test_workers_leave_when_the_supervisor_dies
    server = boot(config: "workers 2")
    pids = server.workers
    server.signal("KILL")
    server.wait_all_gone
    assert_match(/the supervisor has gone/, server.log)
    assert(pids.none? { |pid| server.alive?(pid) })
  end

  def test_one_worker_that_never_boots_leaves_the_others_serving
    server = launch(config: <<~RUBY)
      workers 2
      constants_for_tests restart_delay_s: 0.05, restart_delay_max_s: 0.1, crash_loop_count: 3
      on_worker_boot { |index| raise "no number one here" if index == 1 }
    RUBY
    server.wait_line(/worker 1 failed to boot 3 times in a row/)
    server.ready
    assert_equal "hello", server.get.body
    given_up = server.status["given_up"]
    assert_equal [1], given_up.map { |seat| seat["worker"] }
    assert_match(/no number one here/, given_up.first["reason"])
    assert_equal 0, server.stop
  end

  def test_a_boot_that_hangs_is_ended
    server = launch(config: "workers 1\nboot_timeout_s 1\n" \
                            "constants_for_tests crash_loop_count: 2, restart_delay_s: 0.05\n" \
                            "on_worker_boot { sleep }")
    assert_equal 1, server.wait_exit
    assert_match(/was not ready within boot_timeout/, server.log)
  end
end
