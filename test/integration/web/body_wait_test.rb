# frozen_string_literal: true

require "test_helper"
require "support/raw_client"
require "support/server"

# How long the body of a request took to arrive, which instruments take from its time in the queue.
class BodyWaitTest < Minitest::Test
  include ServerTest

  APP = 'run ->(env) { [200, {}, [env["puma.request_body_wait"].inspect]] }'
  HEAD = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"
  CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n"
  WAIT_S = 0.05

  def test_the_env_says_how_long_the_body_took
    server = boot(rackup: APP, config: "workers 0")
    RawClient.open(server.port) do |client|
      # The interim response says that the head was read.
      assert_equal CONTINUE, client.write("#{HEAD}Expect: 100-continue\r\n\r\n").take(CONTINUE.bytesize)
      sleep WAIT_S
      assert_operator wait_ms(client, "body"), :>=, WAIT_S * 1_000
      assert_kind_of Float, wait_ms(client, "#{HEAD}\r\nbody"), "it came along with its head"
      assert_equal 0, wait_ms(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "of the request before nothing is left"
    end
    assert_equal 0, server.stop
  end

  def test_a_body_that_the_application_reads_counts_nothing
    server = boot(rackup: APP, config: "workers 0\nweb { stream_bodies \"/\" }")
    RawClient.open(server.port) { |client| assert_equal 0, wait_ms(client, "#{HEAD}\r\nbody") }
    assert_equal 0, server.stop
  end

  private

  def wait_ms(client, bytes)
    number = client.write(bytes).read_response.body
    number.include?(".") ? Float(number) : Integer(number)
  end
end
