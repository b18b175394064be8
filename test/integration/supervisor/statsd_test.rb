# frozen_string_literal: true

require "test_helper"
require "socket"
require "support/server"

# Metrics as a StatsD server gets them: a socket of this test.
class StatsdTest < Minitest::Test
  include ServerTest

  WAIT_S = 60
  # Name, value, kind and tags, as StatsD and DogStatsD define a line.
  LINE = /\A([\w.-]+):(\d+(?:\.\d+)?)\|([cg])(?:\|#((?:\w+:[^,|#]*,?)+))?\z/
  DATAGRAM_BYTES_MAX = 1432

  def setup
    super
    @socket = UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) }
    @counts = Hash.new(0)
    @gauges = {}
  end

  def teardown
    @socket.close
    super
  end

  def test_it_gets_each_count_once_though_the_process_that_sends_is_killed
    server = boot(config: "workers 1\n#{statsd}")
    assert_equal [200] * 5, Array.new(5) { server.get.status }
    receive { @counts["chaton.responses.class.2xx"] == 5 && @gauges["chaton.workers.state.ready"] == 1 }
    receive { @counts["chaton.request_duration_seconds.count"] == 5 }
    receive { @gauges.key?("chaton.memory_bytes.process.worker_0.kind.resident") }
    restart_sender(server)
    assert_equal [200] * 3, Array.new(3) { server.get.status }
    receive { @counts["chaton.responses.class.2xx"] == 8 }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  def test_labels_are_tags_where_that_is_set
    server = boot(config: "workers 0\n#{statsd("statsd_tags true")}")
    assert_equal 200, server.get.status
    receive { @counts["chaton.responses class:2xx"] == 1 && @gauges["chaton.ready role:web"] == 1 }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  # Without a server that reads it, nothing else changes.
  def test_a_server_that_is_not_there_is_counted
    server = boot(config: "workers 1\nadmin { bind \"unix://admin.sock\"; statsd \"udp://statsd.invalid:1\"; " \
                          "constants_for_tests admin_statsd_interval_s: 0.2 }")
    server.eventually("it is counted", timeout_s: WAIT_S) do
      answer = UNIXSocket.open(server.path("admin.sock")) do |socket|
        socket.write("GET /metrics HTTP/1.0\r\n\r\n")
        socket.read
      end
      answer[/^chaton_statsd_datagrams_total\{result="failed"\} (\d+)/, 1].to_i.positive?
    end
    assert_equal 200, server.get.status
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  private

  def statsd(more = "")
    "admin do\n  statsd \"udp://127.0.0.1:#{@socket.addr[1]}\"\n  #{more}\n  " \
      "constants_for_tests admin_statsd_interval_s: 0.2\nend\n"
  end

  # Kills the process of the endpoint, and waits for the next one's first datagram.
  def restart_sender(server)
    before = server.status["admin"]["pid"]
    Process.kill("KILL", before)
    server.eventually("it is started again", timeout_s: WAIT_S) do
      ![before, nil].include?(server.status["admin"]["pid"])
    end
    # Those of the dead process.
    take(@socket.recv(65_536)) while @socket.wait_readable(0)
    received = false
    receive { received.tap { received = true } }
  end

  # Takes datagrams until the block is true.
  def receive
    until_s = Process.clock_gettime(Process::CLOCK_MONOTONIC) + WAIT_S
    until (found = yield)
      left_s = until_s - Process.clock_gettime(Process::CLOCK_MONOTONIC)
      flunk "it has not come: #{@counts} #{@gauges}" unless left_s.positive? && @socket.wait_readable(left_s)
      take(@socket.recv(65_536))
    end
    found
  end

  def take(datagram)
    assert_operator datagram.bytesize, :<=, DATAGRAM_BYTES_MAX
    datagram.split("\n").each do |line|
      name, value, kind, tags = LINE.match(line)&.captures
      assert name, "not StatsD: #{line}"
      name = [name, *tags].join(" ")
      kind == "c" ? @counts[name] += value.to_f : @gauges[name] = value.to_f
    end
  end
end
