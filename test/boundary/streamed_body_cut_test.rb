# frozen_string_literal: true

require_relative "streamed_body_case"
require "timeout"

# Streamed request bodies that do not arrive to their end, or whose reader is interrupted.
class StreamedBodyCutTest < Minitest::Test
  include StreamedBodyCase

  REQUEST_S = STRESS ? 8 : 1

  def test_a_client_that_leaves_raises_an_eof_error
    port = stream do |env|
      @seen << env["rack.input"].read(3)
      env["rack.input"].read
    rescue EOFError => e
      @seen << e
      raise
    end
    client = client_of(port)
    client.write("#{HEAD}Content-Length: 6\r\n\r\nabc")
    assert_equal "abc", seen
    client.close_write
    error = seen
    assert_equal [Chaton::RequestBodyError, "its connection ended in the middle of the request's body"],
                 [error.class, error.message]
    assert_equal 400, client.read_response.status
    eventually { @output.string.include?("a request was given up: its connection ended") }
    refute_includes @output.string, "the application failed"
  end

  def test_a_client_that_resets_its_connection_raises_an_eof_error
    client = client_of(stream { |env| reading(env) })
    client.write("#{HEAD}Content-Length: 6\r\n\r\nabc")
    assert_equal "abc", seen
    client.close(reset: true)
    assert_match(/connection ended/, seen)
  end

  def test_a_client_that_sends_too_slowly_raises
    client = client_of(stream(body_timeout_s: 0.1) { |env| reading(env) })
    client.write("#{HEAD}Content-Length: 6\r\n\r\nabc")
    assert_equal "abc", seen
    assert_match(/did not arrive in time/, seen)
    assert_equal 400, client.read_response.status
  end

  # It begins anew with each part. The client may be so slow that its second part is too late; then it tries again.
  def test_the_time_of_a_request_counts_from_the_last_part_that_arrived
    port = stream(request_timeout_s: REQUEST_S, body_timeout_s: 10 * REQUEST_S) do |env|
      2.times { @seen << env["rack.input"].readpartial(3) }
      env["rack.input"].read
    end
    answer = nil
    10.times { break if (answer = late_answer(port)) }
    assert_equal [503, true], [answer[:status], answer[:after_s] >= REQUEST_S], answer.inspect
    eventually { @output.string.include?("request is late") }
  end

  def test_a_body_that_breaks_the_rules_raises
    { "3\r\nabc\r\nx" => /chunk size/, "3\r\nabc\r\n9\r\n" => /larger than the limit/ }.each do |bytes, why|
      client = client_of(stream(body_bytes_max: 10) { |env| reading(env) })
      client.write(CHUNKED + bytes)
      assert_equal "abc", seen
      assert_match why, seen
      assert_equal 400, client.read_response.status
    end
  end

  def test_a_body_whose_length_is_above_the_limit_is_refused_at_once
    client = client_of(stream(body_bytes_max: 10) { |env| reading(env) })
    client.write("#{HEAD}Content-Length: 11\r\n\r\n")
    assert_equal 413, client.read_response.status
    assert_empty @seen
  end

  def test_a_wait_can_be_interrupted_and_nothing_is_lost
    port = stream do |env|
      assert_raises(Timeout::Error) { Timeout.timeout(0.05) { env["rack.input"].readpartial(10) } }
      @seen << :interrupted
      answer(env["rack.input"].read)
    end
    client = client_of(port)
    client.write("#{HEAD}Content-Length: 3\r\n\r\n")
    assert_equal :interrupted, seen
    client.write("abc")
    assert_equal "abc", client.read_response.body
  end

  def test_a_streamed_request_cannot_be_hijacked
    port = stream do |env|
      error = assert_raises(Chaton::Error) { env["rack.hijack"].call }
      answer("#{env["rack.hijack?"]} #{error.message[/the request's body is streamed/]}")
    end
    client = client_of(port)
    client.write("#{HEAD}Content-Length: 3\r\n\r\nabc")
    assert_equal "false the request's body is streamed", client.read_response.body
  end

  private

  # @return [Hash, nil] the answer, and its time since the second part was sent; nil if that part was too late
  def late_answer(port)
    client = client_of(port)
    client.write("#{HEAD}Content-Length: 9\r\n\r\nabc")
    assert_equal "abc", seen
    client.to_io.wait_readable(REQUEST_S / 2.0)
    sent_at_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    client.write("def")
    status = client.read_response.status
    after_s = Process.clock_gettime(Process::CLOCK_MONOTONIC) - sent_at_s
    { status: status, after_s: after_s } if !@seen.empty? && seen == "def"
  end
end
