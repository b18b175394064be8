# frozen_string_literal: true

require "test_helper"
require "chaton/config"

class BindTest < Minitest::Test
  def cast(text) = Chaton::Config::Types::BindAddress.new.cast(text)

  def test_valid_values
    {
      "tcp://127.0.0.1:3000" => "tcp://127.0.0.1:3000", "http://localhost:80/" => "tcp://localhost:80",
      "tcp://0.0.0.0" => "tcp://0.0.0.0:9292", "tcp://:30" => "tcp://0.0.0.0:30", "tcp://[::1]:0" => "tcp://[::1]:0",
      "tcp://[fe80::1%eth0]:1?backlog=5" => "tcp://[fe80::1%eth0]:1", "unix:///run/a.sock" => "unix:///run/a.sock",
      "unix://tmp/a.sock?umask=0117" => "unix://tmp/a.sock", "tcp://h:1?low_latency=true" => "tcp://h:1"
    }.each { |text, expected| assert_equal expected, cast(text).to_s }
    assert_equal [5, "::1"], [cast("tcp://h:1?backlog=5").backlog, cast("tcp://[::1]:1").host]
  end

  def test_the_clients_address_may_come_from_a_balancer
    lines = ["tcp://h:1?proxy_protocol=on", "unix://a?proxy_protocol=true", "https://h:1?cert=a&key=b&proxy_protocol=1"]
    assert_equal [true] * 3, lines.map { |text| cast(text).proxy_protocol }
    assert_equal [false] * 2, ["tcp://h:1", "tcp://h:1?proxy_protocol=off"].map { |text| cast(text).proxy_protocol }
    mismatch = Chaton::Config::Types::Mismatch
    assert_match(/true or false/, assert_raises(mismatch) { cast("tcp://h:1?proxy_protocol=v1") }.message)
    sources = ["tcp://h:1?proxy_protocol=10.0.0.0/8,192.0.2.7", "unix://a?proxy_protocol=::1"]
    assert_equal [%w[10.0.0.0/8 192.0.2.7/32], %w[::1/128]], sources.map { |text| cast(text).proxy_protocol }
    tls = { cert: "a", key: "b", proxy_protocol: ["10.0.0.0/8", "private"] }
    bind = Chaton::Config::Types::BindAddress.new.cast("https://h:1", tls)
    assert_equal ["10.0.0.0/8", *Chaton::Config::Types::Networks::PRIVATE], bind.proxy_protocol
    assert_match(/true or false/, assert_raises(mismatch) { cast("tcp://h:1?proxy_protocol=") }.message)
    assert_match(/did you mean private/, assert_raises(mismatch) { cast("tcp://h:1?proxy_protocol=privat") }.message)
    admin = Chaton::Config::Types::BindAddress.new(port: 1, tls: false)
    assert_match(/no proxy_protocol/, assert_raises(mismatch) { admin.cast("tcp://h:1?proxy_protocol=on") }.message)
  end

  def test_parameters_of_tls_stand_in_the_uri_or_beside_it
    bind = cast("ssl://0.0.0.0:443?cert=a.pem&key=a.key&backlog=7&no_tlsv1=true")
    assert_equal ["https://0.0.0.0:443", 7, [%w[a.pem a.key]], "none", "1.2"],
                 [bind.to_s, bind.backlog, bind.tls.certificates, bind.tls.verify_mode, bind.tls.min_version]
    two = { cert: %w[a.pem b.pem], key: %w[a.key b.key], ca: "ca.pem", verify_mode: :force_peer, min_version: 1.3 }
    bind = Chaton::Config::Types::BindAddress.new.cast("https://:443", two).under("/app")
    assert_equal [[%w[/app/a.pem /app/a.key], %w[/app/b.pem /app/b.key]], "/app/ca.pem", "force_peer", "1.3"],
                 [bind.tls.certificates, bind.tls.ca, bind.tls.verify_mode, bind.tls.min_version]
    assert_equal bind.tls.certificates, cast("https://:443?cert=/app/a.pem&key=/app/a.key&cert=/app/b.pem&key=/app/b.key")
      .tls.certificates
    assert_raises(Chaton::Config::Types::Mismatch) { Chaton::Config::Types::BindAddress.new.cast("tcp://h", two) }
  end

  def test_the_admin_endpoint_is_not_encrypted
    type = Chaton::Config::Types::BindAddress.new(tls: false)
    error = assert_raises(Chaton::Config::Types::Mismatch) { type.cast("https://h?cert=a&key=b") }
    assert_match(/cannot be encrypted/, error.message)
  end

  def test_localhost_stands_for_the_loopback_addresses_that_the_machine_has
    both = [Addrinfo.ip("127.0.0.1"), Addrinfo.ip("192.0.2.1"), Addrinfo.ip("::1")]
    { both => %w[tcp://127.0.0.1:80 tcp://[::1]:80], both.first(2) => %w[tcp://127.0.0.1:80] }.each do |found, expected|
      Socket.stub(:ip_address_list, found) do
        assert_equal expected, cast("tcp://localhost:80").addresses.map(&:to_s)
        plan = Chaton::Config.load({ config_file: "-", bind: ["tcp://localhost:80"] }, env: {})
        assert_equal expected, plan.binds.map(&:to_s)
      end
    end
    assert_equal [5, 5], cast("tcp://localhost?backlog=5").addresses.map(&:backlog)
    %w[tcp://[::1]:80 tcp://h:80 unix:///a].each { |text| assert_equal [text], cast(text).addresses.map(&:to_s) }
  end

  # One that a container knows by its number only.
  def test_a_user_without_a_home_may_use_certificates_but_those_for_development
    before = ENV.to_h
    ENV.delete("XDG_STATE_HOME")
    Dir.stub(:home, -> { raise ArgumentError, "couldn't find home for uid `54321'" }) do
      refute cast("https://h:1?cert=a&key=b").tls.for_development?
      error = assert_raises(Chaton::ConfigError) { cast("tcp://h:1").encrypted_for_development }
      assert_match(/set XDG_STATE_HOME/, error.message)
    end
    ENV["XDG_STATE_HOME"] = "/state"
    assert cast("tcp://h:1").encrypted_for_development.tls.for_development?
  ensure
    ENV.replace(before)
  end

  def test_refused_values_and_their_reasons
    {
      "ssl://0.0.0.0:443" => /needs cert: and key:/, "https://h?cert=a" => /1 cert: and 0 key:/,
      "https://h?cert=a&key=b&verify_mode=peer" => /no ca:/, "https://h?cert=a&key=b&verify_mode=x" => /none or peer/,
      "https://h?cert=a&key=b&min_version=1.1" => /1.2 or 1.3/, "https://h?certs=a" => /did you mean cert/,
      "https://h?cert=a&key=b&ssl_cipher_filter=c" => /only safe ones/, "https://h:70000?cert=a&key=b" => /port from 0/,
      "0.0.0.0:80" => %r{write tcp://0.0.0.0:80},
      "3000" => %r{write tcp://3000}, "/run/a.sock" => %r{write unix:///run/a.sock}, "tcp://h:70000" => /port from 0/,
      "tcp://::1:80" => /must be a URI/, "unix://" => /must be a URI/, "unix://@a" => /abstract/,
      "unix:///#{"a" * 108}" => /below 108 bytes/, "unix:///a?umsk=1" => /did you mean umask/,
      "unix:///a?umask=9" => /octal/, "tcp://h:1?backlog=x" => /backlog/, "ftp://h" => /must be a URI/, nil => /must be/
    }.each do |text, why|
      error = assert_raises(Chaton::Config::Types::Mismatch, text.inspect) { cast(text) }
      assert_match why, error.message
    end
  end
end
