# frozen_string_literal: true

require "test_helper"
require "socket"
require "support/activated_server"
require "support/raw_client"
require "support/server"

# When the listening sockets are closed: before running requests have been answered, in every process that has them.
class ClosedDoorTest < Minitest::Test
  include ServerTest

  # `/wait` is answered when the file "go" exists; `/fork` leaves a child behind and ends its response by closing.
  APP = <<~RUBY
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/wait" then sleep 0.01 until File.exist?("go")
      when "/fork"
        File.write("child", fork { sleep }.to_s)
      end
      [200, { "content-type" => "text/plain" }, Enumerator.new { |out| out << "done" }]
    end)
  RUBY

  WAIT = "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"
  FORK = "GET /fork HTTP/1.0\r\n\r\n"

  ["workers 0", "workers 2"].each do |workers|
    define_method("test_new_clients_are_refused_while_a_request_runs_with_#{workers}") do
      server = boot(rackup: APP, config: workers)
      client = waiting_request(server)
      server.signal("TERM")
      server.eventually("new clients are refused") { refused?(server.port) }
      assert_equal ["stopping", []], server.status.values_at("state", "listen")
      server.write("go", "")
      assert_equal "done", client.read_response.body
      assert_equal 0, server.wait_exit
    end

    define_method("test_a_child_of_the_application_keeps_no_socket_with_#{workers}") do
      server = boot(rackup: APP, config: workers)
      client = RawClient.new(server.port)
      assert_match(/done\z/, client.write(FORK).read_all)
      kill_tree(server)
      assert_path_exists "/proc/#{server.read("child")}"
      server.eventually("new clients are refused") { refused?(server.port) }
    ensure
      Process.kill("KILL", server.read("child").to_i)
    end
  end

  # Not even a process that Chaton does not know keeps a socket open.
  def test_a_child_of_the_supervisor_does_not_keep_new_clients_waiting
    server = boot(config: "workers 1\nbefore_fork { File.write(\"child\", fork { sleep }.to_s) }")
    assert_equal 0, server.stop
    assert_path_exists "/proc/#{server.read("child")}"
    assert refused?(server.port)
    TCPServer.new("127.0.0.1", server.port).close
  ensure
    Process.kill("KILL", server.read("child").to_i)
  end

  def test_orphans_refuse_new_clients_while_a_request_runs
    server = boot(rackup: APP, config: "workers 2")
    server.workers
    client = waiting_request(server)
    server.signal("KILL")
    server.eventually("new clients are refused") { refused?(server.port) }
    server.write("go", "")
    assert_equal "done", client.read_response.body
    server.wait_all_gone
  end

  def test_a_worker_that_is_replaced_leaves_the_socket_open
    server = boot(rackup: APP, config: "workers 1")
    client = waiting_request(server)
    server.signal("USR1")
    server.wait_line(/worker ready/, count: 2)
    assert_equal "done", server.get.body
    server.write("go", "")
    assert_equal "done", client.read_response.body
    server.wait_line(/phased restart done/)
    assert_equal "done", server.get.body
    assert_equal 0, server.stop
  end

  # The workers are stopped, so that the kernel accepts in their place.
  def test_connections_that_the_kernel_has_accepted_are_answered
    server = boot(rackup: APP, config: "workers 2")
    pids = server.workers
    server.eventually("both accept") { server.status["workers"].all? { |worker| worker["accepting"] } }
    pids.each { |pid| server.signal("STOP", pid) }
    server.eventually("no thread of theirs runs") { pids.all? { |pid| server.thread_states(pid).uniq == ["T"] } }
    clients = Array.new(10) { RawClient.new(server.port).write(WAIT) }
    server.signal("TERM")
    server.wait_line(/accepting the connections that have arrived/)
    pids.each { |pid| server.signal("CONT", pid) }
    server.eventually("new clients are refused") { refused?(server.port) }
    server.write("go", "")
    assert_equal ["done"], clients.map { |client| client.read_response.body }.uniq
    assert_equal 0, server.wait_exit
  end

  # Nobody takes them: the stop does not wait for that.
  def test_connections_that_no_worker_accepts_do_not_hold_up_the_end
    server = boot(config: "workers 1")
    server.control("quiet")
    server.eventually("it accepts nothing") { server.status["workers"].none? { |worker| worker["accepting"] } }
    client = RawClient.new(server.port)
    assert_equal 0, server.stop
    refute_match(/accepting the connections/, server.log)
  ensure
    client&.close
  end

  def test_the_service_managers_socket_stays_open
    socket = TCPServer.new("127.0.0.1", 0)
    port = socket.addr[1]
    server = ActivatedServer.new(socket, config: "workers 1\nbind \"tcp://127.0.0.1:#{port}\"")
    (@servers ||= []) << server.start.ready
    # A program that starts again in place must still know whose socket it is.
    server.signal("USR2")
    server.wait_line(/ ready  listen=/, count: 2)
    assert_equal "hello", server.get.body
    assert_equal 0, server.stop
    client = RawClient.new(port)
    assert socket.wait_readable(Server::WAIT_S)
    socket.accept.close
  ensure
    client&.close
    socket.close
  end

  ["workers 0", "workers 1"].each do |workers|
    define_method("test_requests_are_served_during_the_stop_delay_with_#{workers}") do
      server = boot(config: "#{workers}\nstop_delay 3600")
      server.signal("TERM")
      server.wait_line(/stopping after stop_delay_s.*seconds=3600/)
      assert_equal "hello", server.get.body
      status = server.status
      assert_equal "stopping", status["state"]
      assert_equal [false, "the server is stopping"], [status["ready"], status["unready"].first]
      assert_equal 0, server.stop("QUIT")
    end

    define_method("test_the_stop_follows_the_stop_delay_with_#{workers}") do
      server = boot(config: "#{workers}\nstop_delay_s 0.2")
      assert_equal 0, server.stop
      assert_match(/stopping when running work is finished/, server.log)
    end
  end

  private

  # @return [RawClient] with a request that runs
  def waiting_request(server)
    client = RawClient.new(server.port).write(WAIT)
    server.eventually("the request runs") do
      status = server.status
      (status["workers"]&.sum { |worker| worker["running"] } || status["workload"]["running"].size) == 1
    end
    client
  end

  # A connection that is neither refused nor answered keeps its client waiting.
  def refused?(port)
    TCPSocket.new("127.0.0.1", port).close
    false
  rescue Errno::ECONNREFUSED
    true
  end

  def kill_tree(server)
    pids = server.status["mode"] == "single" ? [] : server.workers
    [server.pid, *pids].each { |pid| server.signal("KILL", pid) }
    server.wait_exit
  end
end
