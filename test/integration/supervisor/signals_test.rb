# frozen_string_literal: true

require "test_helper"
require "support/server"

# Signals that change something while the server goes on.
class SignalsTest < Minitest::Test
  include ServerTest

  def test_a_replacement_of_a_quiet_worker_is_quiet_until_a_phased_restart
    server = boot(config: "workers 2")
    assert server.control("quiet")["ok"]
    server.eventually("both are quiet") { accepting(server) == [false, false] }
    old = server.workers
    server.signal("KILL", old.first)
    server.eventually("another one has come, and is quiet") do
      old.first != server.workers.first && accepting(server) == [false, false]
    end
    server.signal("USR1")
    server.eventually("new ones work") { accepting(server) == [true, true] && (old & server.workers).empty? }
    assert_equal "hello", server.get.body
    assert_equal 0, server.stop
  end

  # Reports which signal ended a child of the application.
  CHILDREN_APP = <<~RUBY
    run(lambda do |env|
      signal = env["PATH_INFO"] == "/fork" ? :TERM : :INT
      ready, go = IO.pipe
      pid = signal == :TERM ? fork { go.write("."); sleep } : spawn("echo; exec sleep 100", out: go)
      ready.readpartial(1)
      Process.kill(signal, pid)
      Process.wait(pid)
      [200, { "content-type" => "text/plain" }, [$?.termsig.to_s]]
    end)
  RUBY

  ["workers 0", "workers 1"].each do |config|
    define_method("test_children_of_the_application_get_signals_with_#{config}") do
      server = boot(rackup: CHILDREN_APP, config: config)
      assert_equal Signal.list.fetch("TERM").to_s, server.get("/fork").body
      assert_equal Signal.list.fetch("INT").to_s, server.get("/spawn").body
      assert_equal 0, server.stop
    end
  end

  # Loads until there is a file "go", and tells that it does.
  SLOW = <<~RUBY
    File.write("loading", Process.pid.to_s)
    sleep 0.01 until File.exist?("go")
    run ->(_env) { [200, {}, ["hello"]] }
  RUBY

  ["workers 0", "workers 1"].each do |config|
    define_method("test_signals_in_a_boot_are_carried_out_after_it_with_#{config.tr(" ", "_")}") do
      server = launch(rackup: SLOW, config: config)
      server.eventually("it loads") { File.exist?(server.path("loading")) }
      %w[TTIN TTOU TSTP USR1].each { |name| server.signal(name) }
      server.write("go", "")
      config == "workers 0" ? server.wait_line(/ ready  /, count: 2) : server.wait_line(/phased restart done/)
      assert_equal "hello", server.get.body
      assert_equal 0, server.stop
    end

    define_method("test_signals_in_the_boot_of_a_full_restart_lose_no_client_with_#{config.tr(" ", "_")}") do
      redirect = "stdout_redirect \"out.log\", \"out.log\", true"
      server = launch(rackup: SLOW, config: "#{config}\n#{redirect}\n") { |one| one.write("go", "") }
      server.eventually("it serves") { ready_times(server) == 1 }
      File.unlink(server.path("go"), server.path("loading"))
      server.signal("USR2")
      # From before the program is executed again until it loads the application. TSTP would stop the one before.
      until File.exist?(server.path("loading"))
        %w[USR1 HUP TTIN TTOU].each { |name| server.signal(name) }
        sleep 0.001
      end
      %w[USR2 HUP TTOU TSTP].each { |name| server.signal(name) }
      client = TCPSocket.new("127.0.0.1", port_in_file(server))
      client.write("GET / HTTP/1.0\r\n\r\n")
      server.write("go", "")
      assert_match(/hello\z/, client.read)
      server.eventually("the restart that was asked for in the boot") { ready_times(server) >= 3 }
      assert_equal 0, server.stop
    ensure
      client&.close
    end
  end

  def test_children_of_hooks_inherit_nothing_of_the_supervisor
    server = boot(config: <<~RUBY)
      workers 1
      admin { bind "tcp://127.0.0.1:0" }
      before_fork { File.write("before", fork { sleep }.to_s) }
      after_booted { File.write("after", fork { sleep }.to_s) }
    RUBY
    server.eventually("both are there") { File.size?(server.path("after")) }
    pids = %w[before after].map { |name| server.read(name).to_i }
    pids.each do |pid|
      assert_empty(Dir["/proc/#{pid}/fd/*"].map { |path| File.readlink(path) }.grep(/socket/))
      server.signal("TERM", pid)
      server.eventually("TERM ends it") { !server.alive?(pid) }
    end
    assert_equal "hello", server.get.body
    assert_equal 0, server.stop
  ensure
    pids&.each { |pid| Process.kill("KILL", pid) if server.alive?(pid) }
  end

  def test_a_full_restart_is_refused_while_the_directory_is_missing
    ["workers 0", "workers 1"].each do |config|
      server = boot(config: config)
      File.rename(server.dir, "#{server.dir}.away")
      server.signal("USR2")
      server.wait_line(/the server goes on: the program cannot be started again, because the directory .* is missing/)
      assert_equal "hello", server.get.body
      File.rename("#{server.dir}.away", server.dir)
      server.signal("USR2")
      server.wait_line(/ ready  listen=/, count: 2)
      assert_equal 0, server.stop
    end
  end

  def test_ttin_and_ttou_change_the_number
    server = boot(config: "workers 1")
    server.signal("TTIN")
    server.wait_line(/worker ready.*worker=1/)
    assert_equal 2, server.workers.size
    server.signal("TTOU")
    server.wait_line(/worker stopped.*worker=1/)
    assert_equal 1, server.workers.size
    server.signal("TTOU")
    server.wait_line(/the last worker stays/)
    assert_equal "hello", server.get.body
    assert_equal 0, server.stop
  end

  def test_hup_opens_the_output_files_again
    server = launch(config: "workers 1\nstdout_redirect \"out.log\", \"err.log\", true")
    server.eventually("ready") { said?(server, "ready  listen") }
    File.rename(server.path("out.log"), server.path("out.log.1"))
    server.signal("HUP")
    server.eventually("a new file") { said?(server, "reopened") }
    assert_equal 0, server.stop
    assert_includes server.read("out.log"), "stopped"
    refute_includes server.read("out.log.1"), "stopped"
  end

  # Who starts it looks at its standard error: a service manager's journal, a container's log, a terminal.
  def test_a_start_that_fails_is_seen_although_output_is_redirected
    redirected = "stdout_redirect \"out.log\", \"err.log\", true"
    taken = TCPServer.new("127.0.0.1", 0)
    port = "bind \"tcp://127.0.0.1:#{taken.local_address.ip_port}\""
    ["workers 1\n#{port}", "workers 0\n#{port}"].each do |config|
      server = launch(config: "#{redirected}\n#{config}")
      assert_equal 1, server.wait_exit
      assert_match(/ERROR cannot start: .*#{taken.local_address.ip_port}/, server.log)
      assert_match(/ERROR cannot start: /, server.read("out.log"))
    end
    ["workers 1", "workers 1\npreload false"].each do |config|
      server = launch(rackup: "raise 'no such table'", config: "#{redirected}\n#{config}")
      assert_equal 1, server.wait_exit
      assert_match(/ERROR .*no such table/, server.log)
    end
  ensure
    taken&.close
  end

  def test_hup_without_files_is_the_terminal_closing
    server = boot(config: "workers 1")
    assert_equal 0, server.stop("HUP")
  end

  def test_usr2_starts_again_under_the_same_pid
    server = boot(rackup: "run ->(_) { [200, {}, [\"one\"]] }", config: "workers 1\npidfile \"tmp/server.pid\"")
    port = server.port
    server.write("config.ru", "run ->(_) { [200, {}, [\"two\"]] }")
    server.signal("USR2")
    server.wait_line(/ ready  listen=/, count: 2)
    assert_equal "two", server.get.body
    assert_equal port, server.log.scan(%r{ ready  listen=tcp://127.0.0.1:(\d+)}).last.first.to_i
    assert_equal server.pid, server.read("tmp/server.pid").to_i
    assert_equal 0, server.stop
    server.wait_all_gone
    refute_path_exists server.path("tmp/server.pid")
  end

  def test_usr2_keeps_connections_waiting_instead_of_refusing_them
    server = boot(config: "workers 1")
    load = ClientLoad.new(server.port, clients: 2)
    server.eventually("some load") { load.answered > 100 }
    server.signal("USR2")
    server.wait_line(/ ready  listen=/, count: 2)
    seen = load.answered
    server.eventually("more load") { load.answered > seen + 100 }
    load.stop
    assert_empty load.failures
    assert_equal 0, server.stop
  end

  def test_the_terminal_reaches_the_supervisor_only
    server = boot(config: "workers 1")
    server.signal("INT", server.workers.first)
    assert_equal "hello", server.get.body
    assert_equal 0, server.stop
    refute_match(/worker died/, server.log)
  end

  private

  # @return [Array<Boolean>] of those that are ready
  def accepting(server)
    server.status["workers"].select { |worker| worker["state"] == "ready" }.map { |worker| worker["accepting"] }
  end

  def ready_times(server) = File.exist?(server.path("out.log")) ? server.read("out.log").scan(" ready  listen").size : 0

  def port_in_file(server) = server.read("out.log")[%r{tcp://[^ ]+?:(\d+)}, 1].to_i

  def said?(server, text)
    File.exist?(server.path("out.log")) && server.read("out.log").include?(text)
  end
end
