# frozen_string_literal: true

require_relative "workload_case"

# Hijacked connections.
class HijackTest < Minitest::Test
  include WorkloadCase

  def test_full_hijack
    port = serve do |env|
      io = env["rack.hijack"].call
      Thread.new do
        io.write("HTTP/1.1 101 Switching Protocols\r\n\r\n")
        io.write("echo #{io.gets}")
        io.close
      end
      [-1, {}, []]
    end
    socket = TCPSocket.new("127.0.0.1", port)
    socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_equal "HTTP/1.1 101 Switching Protocols\r\n", socket.gets
    socket.gets
    socket.write("hello\n")
    assert_equal "echo hello\n", socket.read
  ensure
    socket&.close
  end

  def test_a_hijacked_connection_is_a_socket_of_its_family
    port = serve do |env|
      io = env["rack.hijack"].call
      io.write("#{io.class} #{io.peeraddr.first}")
      io.close
      [-1, {}, []]
    end
    assert_equal "TCPSocket AF_INET", exchange(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
  end

  def test_a_hijacked_connection_of_a_unix_socket
    near, far = UNIXSocket.pair
    near.autoclose = false
    io = Chaton::Native::Request.socket(near.fileno)
    GC.start
    io.write("over")
    io.close
    assert_equal ["over", UNIXSocket], [far.read, io.class]
  ensure
    far&.close
  end

  def test_bytes_sent_too_early_are_not_lost
    port = serve do |env|
      io = env["rack.hijack"].call
      io.write(io.gets)
      io.close
      [200, {}, ["ignored"]]
    end
    assert_equal "early\n", exchange(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\nearly\n")
  end

  def test_partial_hijack
    port = serve do
      [200, { "content-type" => "text/plain", "rack.hijack" => lambda { |io|
        io.write("mine")
        io.close
      } }, []]
    end
    answer = exchange(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.start_with?("HTTP/1.1 200 OK\r\n"), answer
    assert answer.end_with?("\r\n\r\nmine"), answer
    refute_match(/content-length|transfer-encoding/i, answer)
  end

  def test_a_partial_hijack_sends_no_body_for_head
    port = serve { [200, { "rack.hijack" => ->(io) { io.write("mine") && io.close } }, []] }
    answer = exchange(port, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_match(%r{\AHTTP/1.1 200 OK\r\n.*connection: close\r\n\r\n\z}mi, answer)
  end

  def test_a_request_is_hijacked_once
    error = Queue.new
    port = serve do |env|
      env["rack.hijack"].call.close
      begin
        env["rack.hijack"].call
      rescue Chaton::ClosedError => e
        error << e
      end
      [200, {}, []]
    end
    exchange(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_includes error.pop.message, "already answered"
  end

  def test_a_partial_hijack_may_have_no_body
    port = serve { [200, { "rack.hijack" => ->(io) { io.write("mine") && io.close } }, nil] }
    assert exchange(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").end_with?("\r\n\r\nmine")
  end
end
