# frozen_string_literal: true

require "test_helper"
require "chaton/version"
require "support/server"

# New code without a gap.
class PhasedRestartTest < Minitest::Test
  include ServerTest

  REQUESTS_MIN = 10_000

  def app(text)
    "run ->(_env) { [200, { \"content-type\" => \"text/plain\" }, [#{text.inspect}]] }"
  end

  def test_ten_thousand_requests_and_none_fails
    server = boot(rackup: app("old"), config: "workers 2")
    load = ClientLoad.new(server.port, clients: 4)
    server.eventually("some load") { load.answered > 1000 }
    server.write("config.ru", app("new"))
    server.signal("USR1")
    server.wait_line(/phased restart done/)
    server.eventually("the load", timeout_s: 60) { load.answered > REQUESTS_MIN && load.bodies["new"] > 1000 }
    load.stop
    assert_empty load.failures
    assert_equal %w[new old], load.bodies.keys.sort
    assert_equal [1], generations(server)
    assert_equal "new", server.get.body
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  # The new code may come with a Chaton that lays the shared memory out differently.
  def test_memory_of_another_layout_is_refused_and_the_old_code_serves_on
    server = boot(rackup: app("old"), config: "workers 1")
    server.write("config.ru", app("new"))
    files = Dir["/proc/#{server.pid}/fd/*"].select { |path| File.readlink(path).include?("chaton-scoreboard") }
    files.each { |path| File.open(path, "r+b") { |file| file.pwrite("\xFF" * 8, 8) } }
    server.signal("USR1")
    line = server.wait_line(/phased restart abandoned/)
    assert_match(/another version of Chaton.*restart the server in full \(SIGUSR2, `chaton restart --full`\)/, line)
    assert_equal "old", server.get.body
    assert_equal 0, server.stop
  end

  def test_another_version_of_chaton_is_refused_and_the_old_code_serves_on
    server = boot(rackup: app("old"), config: "workers 1")
    server.write("config.ru", app("new"))
    server.write("config/chaton.rb", <<~RUBY)
      Chaton.send(:remove_const, :VERSION)
      Chaton::VERSION = "99.1"
      #{server.read("config/chaton.rb")}
    RUBY
    server.signal("USR1")
    line = server.wait_line(/phased restart abandoned/)
    assert_match(/new code has Chaton 99.1 and the running server #{Chaton::VERSION}; .*chaton restart --full/, line)
    assert_equal "old", server.get.body
    assert_equal 0, server.stop
  end

  def test_the_preloader_serves_later_respawns
    server = boot(rackup: app("old"), config: "workers 1")
    server.write("config.ru", app("new"))
    restart(server)
    server.write("config.ru", app("not asked for"))
    server.signal("KILL", server.workers.first)
    server.wait_line(/worker ready/, count: 3)
    assert_equal "new", server.get.body
    server.signal("TTIN")
    server.wait_line(/worker ready.*worker=1/)
    assert_equal [1], generations(server)
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  def test_each_phased_restart_has_a_preloader_of_its_own
    server = boot(rackup: app("0"), config: "workers 1")
    (1..3).each do |round|
      server.write("config.ru", app(round.to_s))
      restart(server, round)
      assert_equal round.to_s, server.get.body
    end
    children = File.read("/proc/#{server.pid}/task/#{server.pid}/children").split
    # One worker and one preloader; a retired preloader may still be leaving.
    server.eventually("the old preloaders have left") do
      File.read("/proc/#{server.pid}/task/#{server.pid}/children").split.size == 2
    end
    refute_empty children
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  # The code on disk may have changed since the first one loaded it.
  def test_a_restart_that_is_asked_for_during_another_one_follows_it_once
    server = boot(rackup: app("1"), config: "workers 1")
    server.write("config.ru", "File.write(\"loading\", \"\")\nsleep 0.01 until File.exist?(\"go\")\n#{app("2")}")
    server.signal("USR1")
    server.eventually("version 2 is being loaded") { File.exist?(server.path("loading")) }
    server.write("config.ru", app("3"))
    2.times { server.signal("USR1") }
    assert server.control("phased-restart")["ok"]
    server.eventually("it is remembered") { server.status.dig("restart", "again") }
    server.write("go", "")
    server.wait_line(/phased restart done/, count: 2)
    assert_equal ["3", false], [server.get.body, server.status.dig("restart", "again")]
    assert_equal 2, server.log.scan("phased restart begins").size
    assert_equal 0, server.stop
  end

  def test_a_mended_deployment_follows_one_whose_workers_do_not_become_ready
    server = boot(rackup: app("old"), config: <<~RUBY)
      workers 1
      on_worker_boot do
        File.rename("hang", "hanging") && sleep if File.exist?("hang")
      end
    RUBY
    server.write("hang", "")
    server.write("config.ru", app("broken"))
    server.signal("USR1")
    server.eventually("its worker hangs") { File.exist?(server.path("hanging")) }
    server.write("config.ru", app("mended"))
    server.signal("USR1")
    server.eventually("it is remembered") { server.status.dig("restart", "again") }
    server.signal("KILL", server.status["workers"].find { |worker| worker["generation"] == 1 }["pid"])
    server.wait_line(/phased restart abandoned/)
    server.wait_line(/phased restart done/)
    assert_equal "mended", server.get.body
    assert_equal 0, server.stop
  end

  def test_new_code_that_does_not_load_changes_nothing
    server = boot(rackup: app("old"), config: "workers 2")
    before = server.workers
    server.write("config.ru", "raise \"half a deployment\"")
    server.signal("USR1")
    server.wait_line(/phased restart abandoned/)
    assert_equal before, server.workers
    assert_equal "old", server.get.body
    assert_equal "abandoned", server.status["restart"]["state"]
    assert_match(/half a deployment/, server.status["restart"]["reason"])
    server.write("config.ru", app("mended"))
    restart(server)
    assert_equal "mended", server.get.body
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  def test_new_code_that_does_not_boot_in_the_second_worker_is_taken_back
    config = "workers 2\non_worker_boot { |index| raise \"not here\" if index == 1 && File.exist?(\"broken\") }"
    server = boot(rackup: app("old"), config: config)
    server.write("broken", "")
    server.write("config.ru", app("new"))
    server.signal("USR1")
    server.wait_line(/phased restart abandoned.*not here/)
    server.eventually("everything is old again") { server.status["restart"]["state"] == "abandoned" }
    assert_equal [0], generations(server)
    assert_equal 2, server.workers.size
    assert_equal "old", server.get.body
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  def test_without_preload_every_worker_loads_the_new_code_itself
    server = boot(rackup: app("old"), config: "workers 2\npreload_app! false")
    server.write("config.ru", app("new"))
    restart(server)
    assert_equal "new", server.get.body
    assert_equal [1], generations(server)
    assert_equal 0, server.stop
    refute_match(/preloader/, server.log)
  end

  def test_a_killed_preloader_is_made_again_when_it_is_needed
    server = boot(rackup: app("old"), config: "workers 1")
    server.write("config.ru", app("new"))
    restart(server)
    preloader = server.log[/preloader ready.*pid=(\d+)/, 1].to_i
    server.signal("KILL", preloader)
    server.wait_line(/preloader ended/)
    server.signal("KILL", server.workers.first)
    server.wait_line(/worker ready/, count: 3)
    assert_equal "new", server.get.body
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  def test_the_preloader_and_its_workers_leave_when_the_supervisor_dies
    server = boot(rackup: app("old"), config: "workers 2")
    restart(server)
    server.workers
    server.signal("KILL")
    server.wait_all_gone
  end

  private

  def restart(server, count = 1)
    done = server.log.scan("phased restart done").size
    server.signal("USR1")
    server.wait_line(/phased restart done/, count: [done + 1, count].max)
  end

  def generations(server)
    server.status["workers"].map { |worker| worker["generation"] }.uniq
  end
end
