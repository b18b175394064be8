# frozen_string_literal: true

require "test_helper"
require "support/server"

# From the command to the first answer, and every way in which that fails.
class BootTest < Minitest::Test
  include ServerTest

  def test_workers_serve_and_leave
    server = boot(config: "workers 2\ntag \"shop\"")
    assert_equal "hello", server.get.body
    assert_equal 2, server.workers.size
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  def test_process_titles
    server = boot(config: "workers 1\ntag \"shop\"")
    assert_match(%r{\Achaton \S+ supervisor \[shop\] tcp://127.0.0.1:#{server.port}}, title(server.pid))
    assert_match(/\Achaton worker 0 web \[shop\]/, title(server.workers.first))
    assert_match(/\Achaton preloader \[shop\]/, title(server.status["preloaders"].first))
  end

  def test_an_application_that_loads_for_long_shows_that_it_goes_on
    %w[0 1].each do |workers|
      server = launch(rackup: "sleep 0.01 until File.exist?(\"go\")\n#{Server::HELLO}", config: "workers #{workers}")
      server.wait_line(/INFO  still loading the application  files=\d+ seconds=\d/)
      server.write("go", "")
      assert_equal "hello", server.ready.get.body
      refute_match(/left threads running/, server.log)
      assert_equal 0, server.stop
    end
  end

  def test_the_log_is_json_on_request
    server = boot(config: "workers 1", args: %w[--log json])
    records = server.log.lines.map { |line| JSON.parse(line) }
    ready = records.find { |record| record["message"] == "ready" }
    assert_equal "info", ready["level"]
    assert_equal server.pid, ready["pid"]
    assert_match(%r{tcp://127.0.0.1:\d+}, ready["listen"])
  end

  def test_an_app_that_does_not_load_is_named
    server = launch(rackup: "require \"no_such_library_here\"", config: "workers 2")
    assert_equal 1, server.wait_exit
    assert_match(/config\.ru/, server.log)
    assert_match(/no_such_library_here/, server.log)
  end

  def test_an_app_that_workers_cannot_load_ends_the_server
    server = launch(rackup: "raise \"no database\"", config: "workers 2\npreload_app! false\n#{QUICK}")
    assert_equal 1, server.wait_exit
    assert_match(/no database/, server.log)
    assert_match(/failed to boot 3 times in a row/, server.log)
    assert_match(/no worker could be started/, server.log)
  end

  def test_a_taken_port_is_named
    taken = TCPServer.new("127.0.0.1", 0)
    server = launch(config: "workers 1\nbind \"tcp://127.0.0.1:#{taken.addr[1]}\"")
    assert_equal 1, server.wait_exit
    assert_match(%r{tcp://127.0.0.1:#{taken.addr[1]} is in use}, server.log)
  ensure
    taken&.close
  end

  def test_a_failing_hook_is_a_failed_boot_and_named
    server = launch(config: "workers 1\non_worker_boot { raise \"hook broke\" }\n#{QUICK}")
    assert_equal 1, server.wait_exit
    assert_match(/hook on_worker_boot failed/, server.log)
    assert_match(/hook broke/, server.log)
  end

  def test_hooks_run_with_the_number_of_the_worker
    server = boot(config: <<~RUBY)
      workers 2
      before_fork { File.write("before", Process.pid.to_s) }
      on_worker_boot { |index| File.write("boot.\#{index}", Process.pid.to_s) }
      on_worker_shutdown { |index| File.write("shutdown.\#{index}", "") }
    RUBY
    assert_equal server.status["preloaders"], [server.read("before").to_i]
    assert_equal server.workers, [0, 1].map { |index| server.read("boot.#{index}").to_i }
    assert_equal 0, server.stop
    assert_path_exists server.path("shutdown.0")
    assert_path_exists server.path("shutdown.1")
  end

  def test_an_application_that_does_not_load_shows_its_own_error_and_line
    [0, 1].each do |workers|
      server = launch(rackup: "require_relative \"lib/shop\"\n#{Server::HELLO}", config: "workers #{workers}") do |one|
        one.write("lib/shop.rb", "\nShop.new\n")
      end
      assert_equal 1, server.wait_exit(timeout_s: 60)
      assert_match(%r{ERROR cannot start: the application did not load  at=lib/shop.rb:2 error=NameError reason=.*Shop},
                   server.log)
      refute_match(%r{#{Server::LIB}/chaton/|exe/chaton}, server.log)
    end
  end

  def test_threads_left_by_preload_are_named
    threads = "Thread.new { sleep }.name = \"poller\"\nThread.new { sleep }.name = \"AR Pool Reaper\"\n" \
              "Thread.new { sleep }\n"
    server = boot(rackup: "#{threads}#{Server::HELLO}", config: "workers 1")
    assert_match(%r{left threads running.* threads="?poller, /\S+config.ru:3"?$}, server.log)
    assert_equal "hello", server.get.body
  end

  def test_the_pidfile_lives_as_long_as_the_server
    server = boot(config: "workers 1\npidfile \"tmp/server.pid\"") { |one| one.write("tmp/server.pid", "999999999") }
    assert_equal server.pid, server.read("tmp/server.pid").to_i
    assert_equal 0, server.stop
    refute_path_exists server.path("tmp/server.pid")
  end

  def test_a_unix_socket_left_behind_is_replaced
    server = launch(config: "workers 1\nbind \"unix://app.sock\"") do |one|
      UNIXServer.new(one.path("app.sock")).close
    end
    server.ready
    client = UNIXSocket.new(server.path("app.sock"))
    client.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert_match(/hello\z/, client.read)
    assert_equal 0, server.stop
    refute_path_exists server.path("app.sock")
  ensure
    client&.close
  end

  QUICK = "constants_for_tests restart_delay_s: 0.05, restart_delay_max_s: 0.1, crash_loop_count: 3"

  private

  def title(pid)
    File.read("/proc/#{pid}/cmdline").delete("\0")
  end
end
