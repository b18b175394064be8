# frozen_string_literal: true

require "test_helper"
require "support/server"

# With preload, a process of its own loads the application and forks workers, from the beginning.
class PreloaderTest < Minitest::Test
  include ServerTest

  # Writes down which processes run the application's code, and takes memory.
  APP = <<~RUBY
    File.write("loaded", "\#{Process.pid}\\n", mode: "a")
    KEPT = Array.new(200_000) { |number| ("x" * 150) << number.to_s }
    run ->(_env) { [200, { "content-type" => "text/plain" }, ["hello"]] }
  RUBY
  # Tells that it loads, and does so until there is a file "go".
  SLOW = "File.write(\"loading\", Process.pid.to_s)\nsleep 0.01 until File.exist?(\"go\")\n#{Server::HELLO}".freeze
  # Bytes of APP's objects, at least.
  APP_BYTES = 40_000_000
  # What a first preloader shares with the supervisor, at most.
  SHARED_BYTES = 16_000_000

  def test_the_supervisor_never_loads_the_application
    server = boot(rackup: APP, config: "workers 2")
    preloader = server.status["preloaders"]
    assert_equal preloader, loaded(server)
    assert_equal children(server), [*preloader, *server.workers].sort
    assert_operator pss(server.pid), :<, APP_BYTES / 2
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  # The first preloader shares Ruby's and Chaton's pages with the supervisor, from which it is forked; a later one is a
  # fresh process (9 to 13 MB more, whatever the application is). No second copy of the application is kept.
  def test_after_a_phased_restart_the_tree_has_the_application_once
    server = boot(rackup: APP, config: "workers 2")
    before = settled_tree(server)
    server.signal("USR1")
    server.wait_line(/phased restart done/)
    server.eventually("the old preloader has left") { children(server).size == 3 }
    after = settled_tree(server)
    assert_equal 2, loaded(server).size
    refute_includes loaded(server), server.pid
    assert_operator after, :<, before + SHARED_BYTES
    assert_equal 0, server.stop
  end

  def test_a_dead_first_preloader_is_made_again_when_a_worker_is_needed
    server = boot(rackup: APP, config: "workers 2")
    first, second = server.workers
    server.signal("KILL", server.status["preloaders"].first)
    server.wait_line(/preloader ended.*SIGKILL/)
    assert_empty server.status["preloaders"]
    assert_equal "hello", server.get.body
    server.signal("KILL", first)
    server.wait_line(/worker ready/, count: 3)
    assert_equal 2, loaded(server).uniq.size
    assert_equal [server.status["preloaders"].first], loaded(server) - [loaded(server).first]
    assert_equal [true, 2], [server.workers.include?(second), server.workers.size]
    assert_equal "hello", server.get.body
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  def test_a_first_preloader_that_is_killed_while_it_loads_ends_the_start
    server = launch(rackup: SLOW, config: "workers 1")
    server.signal("KILL", loading(server))
    assert_equal 1, server.wait_exit
    assert_match(/ERROR cannot start: the process that loads the application was killed by SIGKILL/, server.log)
    server.wait_all_gone
  end

  def test_an_application_that_exits_ends_the_start_with_its_status
    server = launch(rackup: "at_exit { puts \"bye\" }\nabort \"no DATABASE_URL\"", config: "workers 1")
    assert_equal 1, server.wait_exit
    assert_match(/^no DATABASE_URL\nbye$/, server.log)
    refute_match(/ERROR/, server.log)
    server = launch(rackup: "exit 3", config: "workers 1")
    assert_equal 3, server.wait_exit
    server.wait_all_gone
  end

  # Sent to the supervisor alone, or as a terminal and a service manager do, to all.
  { "TERM" => 143, "INT" => 130 }.each do |name, status|
    [false, true].each do |all|
      define_method("test_#{name}_while_the_application_is_loaded#{"_to_all_processes" if all}_ends_the_start") do
        server = launch(rackup: "at_exit { puts \"bye\" }\n#{SLOW}", config: "workers 1")
        pids = [loading(server), server.pid]
        pids.last(all ? 2 : 1).each { |pid| server.signal(name, pid) }
        assert_equal status, server.wait_exit
        assert_equal 1, server.log.scan(/INFO  stopped while starting  signal=/).size
        refute_match(/ERROR/, server.log)
        server.wait_all_gone
        assert_match(/^bye$/, server.log)
      end
    end
  end

  # It raised before the pid was known, and the process went on loading.
  def test_a_signal_that_comes_with_the_fork_ends_both
    early = "def fork = super.tap { Process.kill(:INT, Process.pid) and sleep 0.05 }"
    server = launch(rackup: SLOW, config: <<~RUBY)
      require "chaton/supervisor/preloader"
      Chaton::Supervisor::Preloader.class_eval #{early.dump}
      workers 1
    RUBY
    assert_equal 130, server.wait_exit
    server.wait_all_gone
  end

  def test_clients_are_refused_until_the_application_is_loaded
    port = TCPServer.open("127.0.0.1", 0) { |free| free.addr[1] }
    server = launch(rackup: SLOW, config: "workers 1\nbind \"tcp://127.0.0.1:#{port}\"")
    loading(server)
    assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", port) }
    server.write("go", "")
    assert_equal "hello", server.ready.get.body
    assert_equal 0, server.stop
  end

  # All processes get TERM where a service manager stops a control group.
  def test_a_preloader_leaves_a_stop_to_the_supervisor
    server = boot(config: "workers 1")
    preloader = server.status["preloaders"].first
    %w[TERM INT QUIT].each { |name| server.signal(name, preloader) }
    server.signal("KILL", server.workers.first)
    server.wait_line(/worker ready/, count: 2)
    assert_equal [preloader], server.status["preloaders"]
    assert_equal 0, server.stop
    refute_match(/preloader/, server.log)
    server.wait_all_gone
  end

  def test_a_worker_that_is_forked_after_a_log_rotation_writes_to_the_new_file
    server = launch(rackup: "run ->(_) { [200, {}, [File.readlink(\"/proc/self/fd/1\")]] }",
                    config: "workers 1\nstdout_redirect \"out.log\", \"out.log\", true")
    server.eventually("it serves") { lines(server, /ready  listen/) == 1 }
    File.rename(server.path("out.log"), server.path("out.log.1"))
    server.signal("HUP")
    server.eventually("a new file") { lines(server, /reopened/) == 1 }
    server.signal("KILL", server.workers.first)
    server.eventually("another worker") { lines(server, /worker ready/) == 1 }
    port = server.status["listen"].first[/\d+\z/].to_i
    found = HttpClient.open(port) { |client| client.get("/").body }
    assert_equal File.realpath(server.path("out.log")), found
    assert_equal 0, server.stop
  end

  private

  def loading(server) = server.eventually("it loads") { pid_in(server, "loading") }

  def pid_in(server, name) = (server.read(name).to_i if File.size?(server.path(name)))

  def loaded(server) = server.read("loaded").split.map(&:to_i)

  def lines(server, pattern) = File.exist?(server.path("out.log")) ? server.read("out.log").scan(pattern).size : 0

  def children(server) = File.read("/proc/#{server.pid}/task/#{server.pid}/children").split.map(&:to_i).sort

  # Workers give memory back some time after they were idle.
  def settled_tree(server)
    10.times { server.get }
    sums = []
    server.eventually("the memory has settled") do
      sums << [server.pid, *children(server)].sum { |pid| pss(pid) }
      sums.size > 8 && sums.last(8).max - sums.last(8).min < 500_000
    end
    sums.last
  end

  # Without pages of files: their shares change with each process of another test that maps them.
  def pss(pid) = File.read("/proc/#{pid}/smaps_rollup")[/^Pss_Anon:\s+(\d+)/, 1].to_i * 1024
end
