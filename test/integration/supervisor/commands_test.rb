# frozen_string_literal: true

require "test_helper"
require "support/server"

# The `chaton` command beside running servers.
class CommandsTest < Minitest::Test
  include ServerTest

  # As in a Procfile.
  def test_web_and_jobs_of_one_directory
    server = boot(config: "jobs { }", args: %w[--no-jobs])
    jobs = [{ "RACK_ENV" => "production", "PWD" => server.dir }, RbConfig.ruby, "-I", Server::LIB, Server::EXE,
            "--jobs"]
    worker = Process.spawn(*jobs, chdir: server.dir, out: server.path("jobs.log"), err: %i[child out])
    server.eventually("it runs jobs") { File.socket?(server.path("tmp/chaton-jobs.sock")) }
    out, _, status = server.run_command("status")
    assert_equal [0, 2], [status, out.scan(/^chaton \d.*production  running/).size], out
    assert_match(/several servers run in this directory.*chaton-jobs.sock$/m, server.run_command("stop")[1])
    # Typed in a shell without RACK_ENV.
    out, = server.run_command("jobs", "stats", env: { "RACK_ENV" => nil })
    assert_match(%r{^store +sqlite://\S+/storage/chaton_production.db$}, out)
    assert_equal 0, server.run_command("stop", "--control-socket", "tmp/chaton-jobs.sock").last
    assert_equal 0, Process.wait2(worker).last.exitstatus
    worker = nil
    assert_match(/running  pid #{server.pid} /, server.run_command("status").first)
    assert_equal 0, server.stop
  ensure
    Process.kill("KILL", worker) && Process.wait(worker) if worker
  end

  def app(text) = "run ->(_env) { [200, {}, [#{text.inspect}]] }"

  def test_new_code_of_workers
    server = boot(rackup: app("old"), config: "workers 2")
    server.write("config.ru", app("new"))
    out, err, status = server.run_command("restart", "--wait")
    assert_equal ["server #{server.pid} loads the new code\nall workers have the new code\n", "", 0], [out, err, status]
    assert_equal "new", server.get.body
    assert_equal [1], server.status["workers"].map { |worker| worker["generation"] }.uniq
    assert_equal 0, server.stop
  end

  def test_new_code_that_does_not_load
    server = boot(rackup: app("old"), config: "workers 1")
    server.write("config.ru", "raise 'no such table'")
    _, err, status = server.run_command("restart", "--wait")
    assert_equal 1, status
    assert_match(/\Achaton: the restart was abandoned, the old code goes on serving: .*no such table/, err)
    assert_equal "old", server.get.body
    assert_equal 0, server.stop
  end

  def test_one_process_starts_again_or_ends
    server = boot(rackup: app("old"))
    server.write("config.ru", app("new"))
    out, err, status = server.run_command("restart", "--wait")
    assert_equal ["server #{server.pid} has started again", "", 0], [out.lines.last&.chomp, err, status]
    assert_equal "new", server.get.body
    server.write("config.ru", "raise 'no such table'")
    _, err, status = server.run_command("restart", "--full", "--wait")
    assert_equal ["chaton: server #{server.pid} has ended instead of starting again; its log says why\n", 1],
                 [err, status]
    assert_equal 1, server.wait_exit
  end
end
