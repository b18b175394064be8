# frozen_string_literal: true

require "test_helper"
require "support/raw_client"
require "support/server"

# The client's address from a balancer in front.
class ProxyProtocolTest < Minitest::Test
  include ServerTest

  APP = 'run ->(env) { [200, { "content-type" => "text/plain" }, [env["REMOTE_ADDR"]]] }'
  REQUEST = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"

  def test_the_address_is_that_of_the_header
    config = "bind 'tcp://127.0.0.1:0?proxy_protocol=on'\nworkers 0\nweb { access_log :json }"
    server = boot(rackup: APP, config: config)
    answer = RawClient.exchange(server.port, "PROXY TCP4 203.0.113.7 10.0.0.1 40000 80\r\n#{REQUEST}")
    assert_match(/\r\n\r\n203\.0\.113\.7\z/, answer)
    server.wait_line(/"remote":"203\.0\.113\.7"/)
    assert_equal 0, server.stop
  end

  def test_the_first_connection_without_a_header_is_logged
    server = boot(rackup: APP, config: "bind 'tcp://127.0.0.1:0?proxy_protocol=on'\nworkers 0")
    RawClient.open(server.port, &:close_write)
    refute_match(/PROXY protocol/, server.log)
    2.times { assert refused?(server) }
    server.wait_line(/did not begin with a header of the PROXY protocol.*let the balancer send one/)
    assert_equal 0, server.stop
    assert_equal 1, server.log.scan("did not begin with a header of the PROXY").size
  end

  private

  def refused?(server)
    RawClient.open(server.port) { |one| one.write(REQUEST).closed_by_server? }
  rescue Errno::ECONNRESET
    # The request was left unread.
    true
  end
end
