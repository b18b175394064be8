# frozen_string_literal: true

require "test_helper"
require "socket"
require "support/http_client"
require "support/server"

# Standard output and error are a pipe that is full and that nobody reads.
class UnreadLogTest < Minitest::Test
  include ServerTest

  { "single" => "workers 0", "cluster" => "workers 2" }.each do |name, workers|
    define_method(:"test_requests_are_served_and_the_server_stops_#{name}") do
      unread, server, port = boot_unread(workers)
      # More lines than the pipe holds.
      HttpClient.open(port) { |client| 1500.times { assert_equal "hello", client.get("/").body } }
      assert_equal 0, server.stop
    ensure
      unread&.each(&:close)
    end
  end

  def test_a_worker_that_died_is_replaced_and_the_lines_come_when_somebody_reads
    unread, server, port = boot_unread("workers 2")
    before = server.eventually("both workers exist") { server.workers.then { |pids| pids if pids.size == 2 } }
    server.signal("KILL", before.first)
    server.eventually("the worker is replaced") { server.workers.size == 2 && (server.workers & before).size == 1 }
    assert_equal "hello", HttpClient.open(port) { |client| client.get("/").body }
    log = Output.new(unread.first.dup)
    # It may have been killed before it was ready, which is another sentence.
    killed = /pid=#{before.first} status="killed by SIGKILL"/
    log.wait_line(killed, count: 1, timeout_s: Server::WAIT_S)
    assert_equal 0, server.stop
  ensure
    unread&.each(&:close)
  end

  private

  # @return [Array(Array<IO>, Server, Integer)] both ends of the pipe, the server and its port
  def boot_unread(workers)
    reader, writer = IO.pipe
    loop { writer.write_nonblock("#{"." * 4095}\n") }
  rescue IO::WaitWritable
    port = TCPServer.open("127.0.0.1", 0) { |probe| probe.addr[1] }
    config = "bind \"tcp://127.0.0.1:#{port}\"\n#{workers}\nweb { access_log :common }"
    server = launch(config: config, inherit: { out: writer, err: writer })
    server.eventually("the server is ready") { answers?(port) }
    [[reader, writer], server, port]
  end

  def answers?(port)
    HttpClient.open(port, timeout_s: 1) { |client| client.get("/").status == 200 }
  rescue SystemCallError, EOFError
    false
  end
end
