# frozen_string_literal: true

require "test_helper"
require "support/server"

# Commands that run beside the server: `service` lines.
class ServicesTest < Minitest::Test
  include ServerTest

  # Says its pid, and lives until it is ended.
  ECHO = "service \"echo\", [\"/bin/sh\", \"-c\", \"echo pid $$; read line; echo input ended\"]\n"
  STUBBORN = "service \"stubborn\", [\"/bin/sh\", \"-c\", \"trap '' TERM; echo pid $$; while :; do sleep 600; done\"]\n"

  [0, 1].each do |workers|
    kind = workers.zero? ? "a_single_process" : "a_supervisor"

    define_method("test_#{kind}_runs_logs_restarts_and_stops_a_service") do
      server = boot(config: "workers #{workers}\nconstants_for_tests restart_delay_s: 0.0\n#{ECHO}")
      pid = service_pid(server)
      assert_equal pid, Process.getpgid(pid)
      service = server.status["services"].first
      assert_equal ["echo", "running", pid, 1], service.values_at("name", "state", "pid", "starts")
      Process.kill("KILL", pid)
      second = service_pid(server, count: 2)
      assert_equal 2, server.status["services"].first["starts"]
      assert_match(/ERROR service does not run  service=echo status="killed by SIGKILL"/, server.log)
      assert_equal 0, server.stop(timeout_s: 60)
      refute server.alive?(second)
      assert_match(/service stopped  service=echo/, server.log)
    end

    define_method("test_#{kind}_kills_a_service_that_does_not_end") do
      server = boot(config: "workers #{workers}\nconstants_for_tests service_stop_s: 0.1\n#{STUBBORN}")
      pid = service_pid(server)
      assert_equal 0, server.stop(timeout_s: 60)
      assert_match(/service stopped  service=stubborn status="killed by SIGKILL"/, server.log)
      refute server.alive?(pid)
    end

    define_method("test_a_service_ends_when_#{kind}_is_killed") do
      server = boot(config: "workers #{workers}\n#{ECHO}")
      pid = service_pid(server)
      server.stop("KILL", timeout_s: 60)
      server.eventually("the service has ended", timeout_s: 60) { !server.alive?(pid) }
    end
  end

  def test_a_command_that_is_not_found_leaves_the_server_running
    server = boot(config: "workers 1\nconstants_for_tests restart_delay_s: 30.0\n" \
                          "service \"css\", \"bin/nonesuch --watch\"")
    server.wait_line(%r{service does not run  service=css reason="command not found: bin/nonesuch" restart_in_s=30},
                     timeout_s: 60)
    assert_equal "hello", server.get.body
    assert_equal %w[css waiting], server.status["services"].first.values_at("name", "state")
    assert_equal 0, server.stop(timeout_s: 60)
  end

  def test_a_phased_restart_restarts_services
    server = boot(config: "workers 1\n#{ECHO}")
    first = service_pid(server)
    server.signal("USR1")
    second = service_pid(server, count: 2)
    refute_equal first, second
    refute_match(/ERROR service/, server.log)
    server.wait_line(/ ready  listen=/, count: 2, timeout_s: 60)
    assert_equal 0, server.stop(timeout_s: 60)
  end

  def test_a_touched_file_restarts_the_server
    server = boot(config: "workers 1\nplugin :tmp_restart")
    before = server.workers
    server.write("tmp/restart.txt", "")
    server.wait_line(/restarting, because a file was touched/, timeout_s: 60)
    server.wait_line(/ ready  listen=/, count: 2, timeout_s: 60)
    server.eventually("the workers are new", timeout_s: 60) { (before & server.workers).empty? }
  end

  def test_hooks_of_the_main_process
    server = boot(config: "workers 1\nafter_booted { $stdout.puts \"booted in \#{Process.pid}\" }\n" \
                          "after_stopped { $stdout.puts \"stopped in \#{Process.pid}\" }")
    server.wait_line(/^booted in #{server.pid}$/, timeout_s: 60)
    assert_equal 0, server.stop(timeout_s: 60)
    assert_match(/^stopped in #{server.pid}$/, server.log)
  end

  private

  def service_pid(server, count: 1)
    server.wait_line(/INFO  \w+ \| pid \d+/, count: count, timeout_s: 60)[/\| pid (\d+)/, 1].to_i
  end
end
