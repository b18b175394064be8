# frozen_string_literal: true

require "test_helper"
require "open3"
require "support/server"

# Workers that use more and more memory, with ceilings.
class CeilingsIntegrationTest < Minitest::Test
  include ServerTest

  # /leak keeps some bytes for ever; /burst takes a lot within one request; /hold answers late.
  APP = <<~RUBY
    KEPT = []
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/leak"
        sleep 0.002
        KEPT << ("x" * 10_000)
      when "/burst"
        loop { sleep(0.002) && KEPT << ("x" * 500_000) }
      end
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    end)
  RUBY

  # Far above, so that only the soft ceiling is met.
  FAR = "limit_hard \"8G\""

  def test_leaking_workers_are_recycled_under_load_without_a_failed_request
    server = boot(rackup: APP, config: config(2, "limit \"48M\"", FAR))
    load = ClientLoad.new(server.port, path: "/leak")
    seen = watch_until(server) { server.log.scan("INFO  worker recycled").size >= 3 }
    load.stop
    assert_empty load.failures
    assert_one_at_a_time(server.log)
    assert_operator seen.map { |status| status["workers"].size }.max, :<=, 3
    assert(seen.all? { |status| status["workers"].count { |one| one["state"] == "ready" } >= 2 }, "one was missing")
    memory = server.status["memory"]
    assert_operator memory["recycled_total"], :>=, 3
    assert_equal 0, memory["hard_total"]
    refute_match(/worker died|ERROR/, server.log)
    assert_equal 0, server.stop
  end

  def test_trimming_comes_first_and_the_log_says_why
    server = boot(rackup: APP, config: config(1, "limit \"48M\"", FAR))
    load = ClientLoad.new(server.port, path: "/leak")
    server.wait_line(/INFO  worker recycled: its memory reached \d+ MiB \(soft ceiling 48 MiB\)/)
    load.stop
    assert_match(/asked to collect and trim.*worker is being recycled.*a new one is started first.*worker recycled/m,
                 server.log)
    assert_empty load.failures
    assert_equal 0, server.stop
  end

  def test_without_room_for_two_the_old_one_leaves_first
    server = boot(rackup: APP, config: config(2, "limit_tree \"80M\""))
    load = ClientLoad.new(server.port, path: "/leak")
    server.wait_line(/INFO  worker recycled: all processes have \d+ MiB of 80 MiB together/, count: 2)
    load.stop
    assert_match(/there is no room for two, so it exits first/, server.log)
    assert_empty load.failures
    assert_one_at_a_time(server.log)
    refute_match(/worker died|ERROR/, server.log)
    assert_equal 0, server.stop
  end

  def test_a_request_that_takes_too_much_costs_its_worker_alone
    server = boot(rackup: APP, config: config(2, "limit \"64M\"", "limit_hard \"96M\""))
    first = server.workers
    burst = Thread.new do
      server.get("/burst").status
    rescue SystemCallError, IOError
      "cut off"
    end
    server.wait_line(/ERROR worker stopped at once: its memory reached \d+ MiB \(hard ceiling 96 MiB\)/)
    # 503 if a graceful stop had begun.
    assert_includes ["cut off", 503], burst.value
    # Whether its turn to be recycled had come before is a matter of how fast it grew.
    server.wait_line(/INFO  worker (replaced after it was stopped at once|recycled): /)
    after = server.workers
    assert_equal 2, after.size
    assert_equal 1, (first & after).size, "the other worker was touched"
    assert_match(/stopped at once.* rss="\d+ MiB" pss="\d+ MiB" private="\d+ MiB"/, server.log)
    # The backtraces of its threads are in the log, also if a graceful stop had begun.
    assert_match(/(released|immediate stop|still running).*config\.ru/, server.log)
    refute_match(/worker died/, server.log)
    assert_includes after.map(&:to_s), server.get.body
    assert_equal 1, server.status["memory"]["hard_total"]
    assert_equal 0, server.stop
  end

  def test_a_limit_below_what_is_loaded_is_refused_before_the_fork
    server = launch(config: config(2, "limit \"3M\""))
    assert_equal 1, server.wait_exit
    assert_match(/cannot start: memory limit 3.0 MiB is below what the application needs after loading: /, server.log)
    refute_match(/worker ready/, server.log)
  end

  def test_a_limit_below_what_a_worker_loads_is_refused_when_the_first_is_ready
    server = launch(rackup: "KEPT = \"x\" * 40_000_000\n#{Server::HELLO}",
                    config: config(2, "limit \"24M\"", FAR, preload: false))
    assert_equal 1, server.wait_exit
    assert_match(/cannot start; the server exits  reason="memory limit 24 MiB is below what .* loading: \d+ MiB; raise/,
                 server.log)
    refute_match(/ ready  listen/, server.log)
    server.wait_all_gone
  end

  def test_a_hard_limit_below_what_a_worker_loads_is_a_failed_boot
    server = launch(rackup: "KEPT = \"x\" * 80_000_000\nsleep", config: <<~RUBY)
      #{config(1, "limit \"24M\"", preload: false)}
      constants_for_tests restart_delay_s: 0.1, crash_loop_count: 2
    RUBY
    assert_equal 1, server.wait_exit
    reason = "memory limit_hard 36 MiB is below what the application needs while it is loading: "
    assert_match(/worker did not become ready .*status="killed by SIGKILL" reason="#{reason}/, server.log)
    assert_match(/failed to boot 2 times in a row/, server.log)
    assert_match(/no worker could be started; the server exits  reason="#{reason}/, server.log)
    server.wait_all_gone
  end

  def test_a_limit_below_what_a_single_process_loads_is_refused
    server = launch(config: config(0, "limit \"3M\""))
    assert_equal 1, server.wait_exit
    assert_match(/cannot start: memory limit 3.0 MiB is below/, server.log)
  end

  def test_one_that_is_not_ready_in_place_of_another_leaves_that_in_peace
    server = boot(rackup: APP, config: <<~RUBY)
      #{config(1, "limit \"48M\"", FAR)}
      on_worker_boot { |_| raise "no more of them" if File.exist?("full") }
    RUBY
    pids = server.workers
    server.write("full", "")
    load = ClientLoad.new(server.port, path: "/leak")
    server.wait_line(/recycling abandoned: the new worker did not come up; the old one goes on serving/)
    load.stop
    assert_empty load.failures
    assert_equal pids, server.workers
    assert_equal 0, server.status["memory"]["recycled_total"]
    assert_equal 0, server.stop
  end

  def test_status_shows_what_is_shared_and_what_is_not
    server = boot(config: config(2, "limit \"64M\""))
    server.status["workers"].each do |worker|
      memory = worker["memory"]
      assert_operator memory["private"], :>, 0
      assert_operator memory["shared"], :>, memory["private"], "nothing of what was loaded is shared"
      assert_operator memory["pss"], :<=, memory["rss"]
    end
    out, = Open3.capture2(*server.command, "status", chdir: server.dir)
    assert_match(/ memory +private +shared +recycled$/, out)
    assert_match(/^memory: 64 MiB ceiling  96 MiB hard ceiling  \d+ MiB in all$/, out)
    assert_equal 0, server.stop
  end

  private

  def config(workers, *lines, preload: true)
    lines = ["constants_for_tests check_every_s: 0.1", *lines].map { |line| "  #{line}" }.join("\n")
    "workers #{workers}\npreload_app! #{preload}\nmemory do\n#{lines}\nend\n"
  end

  # @return [Array<Hash>] what the status was meanwhile
  def watch_until(server)
    seen = []
    server.eventually("recycled often enough", timeout_s: 60) do
      seen << server.status
      yield
    end
    seen
  end

  # A worker's turn begins only when the one before has come to its end.
  def assert_one_at_a_time(log)
    turns = log.scan(/INFO  worker (is being recycled|recycled): .* worker=(\d)/).take_while(&:any?)
    turns.each_slice(2) do |began, ended|
      assert_equal "is being recycled", began.first
      assert_equal ["recycled", began.last], ended if ended
    end
    refute_empty turns
  end
end
