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

  def said?(server, text)
    File.exist?(server.path("out.log")) && server.read("out.log").include?(text)
  end
end
