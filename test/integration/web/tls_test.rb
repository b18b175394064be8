# frozen_string_literal: true

require "test_helper"
require "support/tls_server"

# HTTPS against the real server, with a client of OpenSSL.
class TlsTest < Minitest::Test
  include ServerTest
  include TlsServer

  def test_requests_of_all_kinds_on_one_connection
    server = serve
    one = client(server)
    assert_equal "on|https|443||||", one.write(request("/env")).read_response.body
    one.write(request("/") + request("/env"))
    assert_equal ["hello", "on|https|443||||"], Array.new(2) { one.read_response.body }
    chunked = "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" \
              "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    assert_equal "abcde", one.write(chunked).read_response.body
    upload = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: #{BIG.size}\r\n"
    assert_equal BIG, one.write("#{upload}\r\n#{BIG}").read_response.body
    one.write("#{upload}Expect: 100-continue\r\n\r\n")
    assert_equal "HTTP/1.1 100 Continue", one.read_some(100).lines.first.chomp
    assert_equal BIG, one.write(BIG).read_response.body
    %w[/big /parts /file].each { |path| assert_equal BIG, one.write(request(path)).read_response.body, path }
    last = one.write(request("/", "Connection: close"))
    assert_equal "hello", last.read_response.body
    assert last.closed_by_server?
    assert_equal 0, server.stop
  end

  def test_a_slow_reader_gets_everything
    server = serve
    %w[/big /parts /file].each do |path|
      RawClient.open(port(server), receive_bytes_max: 4096, tls: @tls.context) do |slow|
        assert_equal BIG, slow.write(request(path)).read_response.body, path
      end
    end
  end

  def test_an_answer_that_is_cut_off_has_no_good_end
    server = serve
    one = client(server).write("GET /cut HTTP/1.0\r\n\r\n")
    error = assert_raises(OpenSSL::SSL::SSLError) { one.read_all }
    assert_match(/unexpected eof/, error.message)
    # One that ends well says so.
    assert client(server).write("GET / HTTP/1.0\r\n\r\n").read_all.end_with?("hello")
  end

  def test_the_application_takes_over_an_encrypted_connection
    server = serve
    upgrade = request("/relay", "Connection: upgrade", "Upgrade: echo")
    one = client(server).write("#{upgrade}early ").to_io
    head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"
    assert_equal "#{head}early ", one.read(head.size + 6)
    BIG.scan(/.{65536}/m) do |part|
      one.write(part)
      assert part == one.read(part.size)
    end
    one.to_io.shutdown(:WR)
    assert_equal "end", one.read
    assert client(server).write(request("/partial")).read_all.end_with?("\r\n\r\n#{BIG}")
    # One that is still open does not keep the server from ending.
    two = client(server).write(upgrade).to_io
    assert_equal head, two.read(head.size)
    assert_equal 0, server.stop
  end

  def test_an_application_that_takes_over_waits_for_a_slow_client
    server = serve
    RawClient.open(port(server), receive_bytes_max: 4096, tls: @tls.context) do |slow|
      assert slow.write(request("/partial")).read_all.end_with?("\r\n\r\n#{BIG}")
    end
  end

  # The application has written what fits, and has closed its end: nobody but the engine can give the client up.
  def test_a_client_that_takes_nothing_from_a_closed_hijack_is_closed
    server = serve("workers 0\nweb { write_timeout_s 0.5 }")
    one = client(server)
    sockets = -> { Integer(one.write(request("/sockets")).read_response.body) }
    before = sockets.call
    stalled = Array.new(3) { client(server, receive_bytes_max: 4096).write(request("/full")) }
    server.eventually("the applications had their connections") { server.log.scan("closed its end").size == 3 }
    server.eventually("the sockets are closed") { sockets.call == before }
    assert_equal 0, server.stop
  ensure
    stalled&.each(&:close)
  end

  def test_plain_http_is_answered_with_a_sentence
    server = serve
    answer = RawClient.exchange(port(server), request("/"))
    assert_match(%r{\AHTTP/1.1 400 .*speaks HTTPS}m, answer)
    garbage = ["\x16\x03\x01\x00\x02AB", "\x00" * 50, "\x16\x03\x01\xff\xff#{"x" * 70_000}", "\x80\x2e\x01\x00\x02"]
    garbage.each do |bytes|
      answer = RawClient.open(port(server)) { |raw| to_the_end(raw.write(bytes.b).close_write) }
      refute_includes answer, "HTTP", bytes[0, 9].inspect
    end
    assert_equal "hello", client(server).write(request("/")).read_response.body
    failures = server.status.dig("workload", "web", "tls_failures_total")
    assert_equal garbage.size + 1, failures
  end

  # RFC 8446 section 6: a record of type 21, a fatal alert. Bytes that nobody reads must not reset the connection.
  def test_broken_records_are_answered_with_an_alert
    server = serve
    decode_error, unexpected_message = 50, 10
    { "\x17\x03\x03\x00\x05hello" => unexpected_message, "\x80\x2e\x01\x00\x02" => decode_error,
      "\x00" * 50_000 => decode_error, "get / HTTP/1.1\r\n\r\n" => decode_error,
      "\x16\x03\x01\xff\xff#{"x" * 70_000}" => decode_error }.each do |bytes, alert|
      answer = RawClient.exchange(port(server), bytes.b)
      assert_equal [21, 0x303, 2, 2, alert], answer.unpack("CnnCC"), bytes[0, 9].inspect
    end
  end

  # The server may close the connection before it has read everything.
  def to_the_end(client)
    client.read_all
  rescue Errno::ECONNRESET
    ""
  end

  def test_slow_handshakes_end_and_keep_nobody_out
    server = serve("workers 0\nconstants_for_tests tls_handshake_timeout_s: 1.0, tls_handshakes_max: 20")
    slow = Array.new(60) { RawClient.new(port(server)).write("\x16\x03\x01") }
    assert_equal "hello", client(server).write(request("/")).read_response.body
    # The first ones are closed for the later ones, and these when their time is over.
    slow.each { |one| assert one.closed_by_server? }
    server.eventually("all handshakes have ended") { server.status.dig("workload", "web", "connections").zero? }
  ensure
    slow&.each(&:close)
  end

  # As Docker and Kubernetes mount them.
  def test_a_key_that_everybody_may_read_is_used_with_a_warning
    File.chmod(0o444, @tls.path("app.key"))
    server = serve
    assert_equal "hello", client(server).write(request("/")).read_response.body
    warned = server.log.scan(/app.key: every user of this machine may read it; run chmod o= on it/)
    assert_equal 1, warned.size, server.log
    assert_equal 0, server.stop
    checked = launch(config: bind(**@tls.pair("app")), args: %w[check])
    assert_equal 0, checked.wait_exit
    assert_match(/app.key: every user of this machine may read it/, checked.log)
  end

  def test_wrong_files_are_named_at_boot
    @tls.write("other")
    @tls.write("old", days: -1)
    @tls.write("open")
    File.chmod(0o646, @tls.path("open.key"))
    File.write(@tls.path("empty.pem"), "")
    locked = OpenSSL::PKey::EC.generate("prime256v1").private_to_pem(OpenSSL::Cipher.new("aes-128-cbc"), "secret")
    File.write(@tls.path("locked.key"), locked, perm: 0o600)
    {
      { cert: "app.pem", key: "other.key" } => /other.key: it is not the key of the certificate .*app.pem/,
      { cert: "old.pem", key: "old.key" } => /old.pem: it expired on/,
      { cert: "open.pem", key: "open.key" } => /open.key: every user .*may replace.*mode 0646.*chmod o=/,
      { cert: "none.pem", key: "app.key" } => /none.pem: No such file/,
      { cert: "app.pem", key: "none.key" } => /none.key: No such file/,
      { cert: "empty.pem", key: "app.key" } => /empty.pem: there is no certificate/,
      { cert: "app.pem", key: "empty.pem" } => /empty.pem: /,
      { cert: "app.pem", key: "locked.key" } => /locked.key: it is encrypted/
    }.each do |pair, message|
      server = launch(config: bind(**pair.transform_values { |name| @tls.path(name) }))
      assert_equal 1, server.wait_exit, pair
      assert_match message, server.log
    end
    checked = launch(config: bind(cert: @tls.path("app.pem"), key: @tls.path("other.key")), args: %w[check])
    assert_equal 1, checked.wait_exit
    assert_match(/other.key: it is not the key of/, checked.log)
  end
end
