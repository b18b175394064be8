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

  def test_the_balancer_says_that_the_client_spoke_tls
    config = "bind 'tcp://127.0.0.1:0?proxy_protocol=on'\nworkers 0\nweb { https_only true }"
    keys = %w[REMOTE_ADDR rack.url_scheme HTTPS SERVER_PORT]
    app = "run ->(env) { [200, {}, [env.values_at(*#{keys}).join(' ')]] }"
    server = boot(rackup: app, config: config)
    # ::ffff:203.0.113.7, and PP2_TYPE_SSL with the bits of the client.
    { 1 => /\r\n\r\n203\.0\.113\.7 https on 443\z/, 0 => %r{\AHTTP/1\.1 301 } }.each do |bits, expected|
      additions = [0x20, 5, bits, 0].pack("CnCN")
      addresses = [*[0] * 10, 255, 255, 203, 0, 113, 7].pack("C*") * 2
      header = ["\r\n\r\n\0\r\nQUIT\n", 0x21, 0x21, 36 + additions.size, addresses, 1, 443].pack("a12CCna32nn")
      assert_match expected, RawClient.exchange(server.port, header + additions + REQUEST)
    end
    assert_equal 0, server.stop
  end

  def test_balancers_that_are_not_listed_are_refused_and_the_first_one_is_logged
    server = boot(rackup: APP, config: "bind 'tcp://127.0.0.1:0?proxy_protocol=10.0.0.0/8'\nworkers 0")
    2.times { assert refused?(server, "PROXY TCP4 10.9.9.9 10.0.0.1 1 80\r\n") }
    server.wait_line(/closed a connection of 127\.0\.0\.1, which proxy_protocol of its bind does not list/)
    assert_equal 0, server.stop
    assert_equal 1, server.log.scan("does not list").size
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

  def refused?(server, header = "")
    RawClient.open(server.port) { |one| one.write(header + REQUEST).closed_by_server? }
  rescue Errno::ECONNRESET
    # The request was left unread.
    true
  end
end
