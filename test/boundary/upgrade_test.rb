# frozen_string_literal: true

require_relative "workload_case"

# A connection that the application upgrades to another protocol, and reads and writes through a streaming body.
class UpgradeTest < Minitest::Test
  include WorkloadCase

  UPGRADE = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: chat, echo/2\r\n\r\n"

  # A body of Rack 3 that repeats what the client sends, and counts how often it was closed.
  class Echo
    attr_reader :closed

    def initialize = @closed = 0

    def call(stream)
      while (line = stream.gets)
        raise "the echo broke" if line == "break\n"

        stream.write("echo ")
        stream << line
        stream.flush
      end
      stream.close_write
      stream.close
    end

    def close = @closed += 1
  end

  def test_a_streaming_body_of_a_101_reads_and_writes_the_connection
    finished = Queue.new
    body = Echo.new
    port = serve do |env|
      env["rack.response_finished"] << ->(_, status, _, error) { finished << [status, error] }
      [101, { "connection" => "upgrade", "upgrade" => "chat", "x-key" => "k" }, body]
    end
    # The first line arrives with the request.
    answer = talk(port, "#{UPGRADE}early\n") do |socket|
      assert_equal "echo early\n", socket.gets
      3.times do |n|
        socket.write("line #{n}\n")
        assert_equal "echo line #{n}\n", socket.gets
      end
    end
    assert_equal "HTTP/1.1 101 Switching Protocols", answer.first
    assert_includes answer.map(&:downcase), "connection: upgrade"
    assert_includes answer, "x-key: k"
    assert_empty answer.grep(/content-length|transfer-encoding|connection: close/i)
    assert_equal [101, nil], finished.pop
    eventually { body.closed == 1 }
  end

  def test_the_protocol_that_the_application_chooses_is_upgraded_to
    offered = Queue.new
    port = serve do |env|
      offered << env["rack.protocol"]
      [200, { "rack.protocol" => "echo/2" }, Echo.new]
    end
    answer = talk(port, UPGRADE) do |socket|
      socket.write("hello\n")
      assert_equal "echo hello\n", socket.gets
    end
    assert_equal %w[chat echo/2], offered.pop
    assert_equal ["HTTP/1.1 101 Switching Protocols", ["upgrade: echo/2"], ["connection: upgrade"]],
                 [answer.first, answer.grep(/upgrade:/i), answer.map(&:downcase).grep(/connection:/)]
  end

  def test_a_protocol_that_the_client_has_not_offered_is_an_error
    port = serve { [200, { "rack.protocol" => "other" }, Echo.new] }
    assert_match(%r{\AHTTP/1\.1 500 }, exchange(port, UPGRADE))
    eventually { @output.string.include?("the client has not offered the protocol") }
  end

  def test_a_request_without_an_upgrade_offers_no_protocol
    port = serve { |env| [200, {}, [env.values_at("rack.protocol", "HTTP_UPGRADE").inspect]] }
    assert_equal "[nil, nil]", get(port).body
    # RFC 9110 section 7.8: HTTP/1.0 knows no upgrade.
    old = exchange(port, UPGRADE.sub("HTTP/1.1", "HTTP/1.0"))
    assert old.end_with?("[nil, nil]"), old
  end

  def test_a_client_that_leaves_is_no_error_of_the_application
    finished = Queue.new
    port = serve do |env|
      env["rack.response_finished"] << ->(_, status, _, error) { finished << [status, error.class] }
      [101, { "connection" => "upgrade", "upgrade" => "chat" }, ->(stream) { loop { stream.readline } }]
    end
    talk(port, UPGRADE) { |socket| socket.write("a line\n") }
    assert_equal [101, Chaton::ClientGone], finished.pop
    eventually { @output.string.include?("an upgraded connection ended") }
    assert_match(/INFO  an upgraded connection ended  error=EOFError reason="end of file reached"/, @output.string)
    refute_match(/the application failed/, @output.string)
  end

  def test_a_streaming_body_that_fails_after_a_101_closes_the_connection
    body = Echo.new
    port = serve { [101, { "connection" => "upgrade", "upgrade" => "chat" }, body] }
    assert exchange(port, "#{UPGRADE}break\n").end_with?("\r\n\r\n")
    eventually { body.closed == 1 && @output.string.include?("the echo broke") }
  end

  private

  # Sends an upgrade, lets the block talk, ends its side and waits for the end of the other.
  #
  # @return [Array<String>] the lines of the response's head
  def talk(port, request)
    socket = TCPSocket.new("127.0.0.1", port)
    socket.write(request)
    relaxed do
      head = socket.gets("\r\n\r\n").split("\r\n")
      yield socket
      socket.close_write
      assert_equal "", socket.read
      head
    end
  ensure
    socket&.close
  end
end
