# frozen_string_literal: true

require "test_helper"
require "socket"
require "support/admin_client"
require "support/cpu_time"
require "support/server"

# The system has no descriptor and no pid left for a while: nothing ends, and everything comes back by itself.
class ScarcityTest < Minitest::Test
  include ServerTest

  QUICK = <<~RUBY
    workers 1
    constants_for_tests restart_delay_s: 0.05, restart_delay_max_s: 0.2, crash_loop_count: 2
  RUBY

  # While a file is there, it refuses the forks of the process that has loaded the code, or those of its children.
  REFUSE = <<~RUBY
    loaded_in = Process.pid
    refuse = Module.new do
      define_method(:_fork) do
        raise Errno::EAGAIN if File.exist?(Process.pid == loaded_in ? "refuse" : "refuse.between")

        super()
      end
    end
    Process.singleton_class.prepend(refuse)
  RUBY

  def test_a_supervisor_without_descriptors_goes_on
    server = boot(config: "#{QUICK}admin { bind \"tcp://127.0.0.1:0\" }\nservice :clock, \"sleep 1000\"\n")
    server.wait_line(/service started/)
    assert_equal 200, AdminClient.new(server.status["admin"]["listen"].first[/\d+\z/].to_i).get("/live").status
    status = server.status
    processes = [*server.workers, status["admin"]["pid"], status["services"].first["pid"]]
    limit_descriptors(server, 3)
    processes.each { |pid| server.signal("KILL", pid) }
    server.wait_line(/worker did not become ready.*fork failed: Too many open files/, count: 3)
    server.wait_line(/service does not run.*Too many open files/)
    server.wait_line(/the admin endpoint's process died.*Too many open files/)
    client = UNIXSocket.new(server.path("tmp/chaton.sock"))
    server.signal("USR1")
    server.wait_line(/phased restart abandoned.*Too many open files/)
    CpuTime.window(server.pid, 1) { |share| assert_operator share, :<, 0.5 }
    limit_descriptors(server, 1024)
    comes_back(server, client)
  ensure
    client&.close
  end

  { "refuse" => "the preloader's fork", "refuse.between" => "the fork of the process in between" }.each do |file, what|
    define_method("test_a_preloader_lives_on_when_#{what.tr(" '", "__")}_is_refused") do
      server = boot(config: "#{QUICK}#{REFUSE}")
      server.signal("USR1")
      server.wait_line(/phased restart done/)
      server.write(file, "")
      server.signal("KILL", server.workers.first)
      server.wait_line(/worker did not become ready.*fork failed: Resource temporarily unavailable/, count: 3)
      File.unlink(server.path(file))
      server.wait_line(/worker ready .*generation=1/, count: 2)
      refute_match(/preloader ended/, server.log)
      assert_equal "hello", server.get.body
      assert_equal 0, server.stop
    end
  end

  private

  def limit_descriptors(server, count)
    assert system("prlimit", "--pid", server.pid.to_s, "--nofile=#{count}:")
  end

  def comes_back(server, client)
    server.wait_line(/worker ready/, count: 2)
    server.wait_line(/service started/, count: 2)
    client.write("{\"command\":\"status\"}\n")
    assert_equal "running", JSON.parse(client.gets)["state"]
    server.eventually("the admin endpoint is back") { server.status.dig("admin", "pid") }
    assert_equal "hello", server.get.body
    assert_equal 0, server.stop
  end
end
