# frozen_string_literal: true

require_relative "streamed_body_case"
# "digest" alone loads the class on first use, which fails in some of several threads at once.
require "digest/sha2"

# Request bodies that the application reads while they arrive (`stream_bodies`).
class StreamedBodyTest < Minitest::Test
  include StreamedBodyCase

  def test_the_application_reads_while_the_body_arrives
    client = client_of(stream { |env| answer(@seen << env["rack.input"].read(3) << env["rack.input"].read) })
    client.write("#{HEAD}Content-Length: 6\r\n\r\nabc")
    assert_equal "abc", seen
    client.write("def")
    assert_equal ["def", 200], [seen, client.read_response.status]
    # All was read, so the connection serves again.
    client.write("#{HEAD}Content-Length: 4\r\n\r\nabcd")
    assert_equal ["abc", "d", 200], [seen, seen, client.read_response.status]
  end

  def test_other_paths_reach_the_application_with_their_whole_body
    port = stream do |env|
      @seen << env["PATH_INFO"]
      answer(env["rack.input"].rewind && env["rack.input"].read)
    end
    client = client_of(port)
    client.write("#{HEAD.sub("/up/1", "/upper")}Content-Length: 6\r\n\r\nabc")
    streamed = client_of(port)
    streamed.write("#{HEAD.sub("/up/1", "/exact")}Content-Length: 6\r\n\r\nabc")
    assert_equal "/exact", seen
    assert_empty @seen
    client.write("def")
    assert_equal ["/upper", "abcdef"], [seen, client.read_response.body]
  end

  def test_every_way_to_read
    port = stream do |env|
      input = env["rack.input"]
      buffer = +"old"
      @seen << [input.read(0), input.gets, input.read(2, buffer).dup, buffer.dup, input.eof?, input.readpartial(3),
                input.gets, input.gets, input.gets, input.read(1), input.read, input.read(1, buffer), buffer,
                input.eof?, input.each.to_a, input.external_encoding, input.respond_to?(:rewind), env["CONTENT_LENGTH"]]
      answer
    end
    client = client_of(port)
    client.write("#{CHUNKED}5\r\none\nt\r\n1\r\nw\r\nd\r\nothree\nfour\nx\r\n0\r\n\r\n")
    assert_equal 200, client.read_response.status
    assert_equal ["", "one\n", "tw", "tw", false, "oth", "ree\n", "four\n", "x", nil, "", nil, "", true, [],
                  Encoding::BINARY, false, nil], seen
  end

  def test_each_yields_the_parts_as_they_arrive
    client = client_of(stream { |env| answer(env["rack.input"].each { |part| @seen << part }.eof?.to_s) })
    client.write(CHUNKED)
    %w[one two].each do |part|
      client.write("3\r\n#{part}\r\n")
      assert_equal part, seen
    end
    client.write("0\r\n\r\n")
    assert_equal "true", client.read_response.body
  end

  def test_both_directions_at_once
    port = stream do |env|
      [200, {}, lambda { |stream|
        env["rack.input"].each { |part| stream.write(part.upcase) }
        stream.close
      }]
    end
    socket = TCPSocket.new("127.0.0.1", port)
    socket.write(CHUNKED)
    relaxed { assert_match(/transfer-encoding: chunked\r\nconnection: close/i, socket.gets("\r\n\r\n")) }
    %w[one two].each do |part|
      socket.write("3\r\n#{part}\r\n")
      assert_equal "3\r\n#{part.upcase}\r\n", relaxed { socket.read(8) }
    end
    socket.write("0\r\n\r\n")
    assert_equal "0\r\n\r\n", relaxed { socket.read }
  ensure
    socket&.close
  end

  def test_a_client_waits_while_the_application_does_not_read
    port = stream(stream_body_bytes_max: 4096) do |env|
      # The collector is not what is tested, and would take minutes here.
      relaxed { @gate.pop }
      digest = Digest::SHA256.new
      env["rack.input"].each { |part| digest << part }
      answer(digest.hexdigest)
    end
    body = Random.bytes(32 << 20)
    client = client_of(port)
    writer = Thread.new { client.write("#{HEAD}Content-Length: #{body.bytesize}\r\n\r\n").write(body) }
    eventually { running == 1 }
    # More than the kernel's buffers take.
    assert_nil writer.join(0.2)
    @gate << :go
    assert_equal Digest::SHA256.hexdigest(body), client.read_response.body
    writer.join
  end

  def test_others_are_served_while_one_waits_for_its_client
    port = stream { |env| answer(env["PATH_INFO"] == "/up/1" ? env["rack.input"].read : "quick") }
    client = client_of(port)
    client.write("#{HEAD}Content-Length: 3\r\n\r\n")
    eventually { running == 1 }
    assert_equal "quick", get(port).body
    client.write("abc")
    assert_equal "abc", client.read_response.body
  end

  def test_100_is_sent_when_the_application_first_reads
    port = stream do |env|
      @gate.pop
      answer(env["rack.input"].read)
    end
    client = client_of(port)
    client.write("#{HEAD}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    eventually { running == 1 }
    refute client.to_io.wait_readable(0.1)
    @gate << :go
    assert_equal "HTTP/1.1 100 Continue\r\n\r\n", client.to_io.readpartial(100)
    client.write("abc")
    assert_equal "abc", client.read_response.body
  end

  def test_a_body_that_nobody_asks_for_is_not_waited_for
    client = client_of(stream { answer("refused") })
    client.write("#{HEAD}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    response = client.read_response
    assert_equal ["refused", "close"], [response.body, response.headers["connection"]]
    assert client.closed_by_server?
  end

  def test_a_body_that_came_with_its_head_may_stay_unread
    client = client_of(stream { |env| answer(env["REQUEST_METHOD"]) })
    client.write("#{HEAD}Content-Length: 3\r\n\r\nabcGET /next HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_equal %w[POST GET], Array.new(2) { client.read_response.body }
  end

  def test_a_closed_input_is_not_read_any_more
    port = stream do |env|
      2.times { env["rack.input"].close }
      @seen << (env["rack.input"].read rescue $!.class) # rubocop:disable Style/RescueModifier, Style/SpecialGlobalVars
      answer
    end
    client = client_of(port)
    client.write("#{HEAD}Content-Length: 1000000\r\n\r\nabc")
    assert_equal [IOError, 200], [seen, client.read_response.status]
    assert client.closed_by_server?
  end
end
