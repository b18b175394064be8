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

  def test_refused_values_and_their_reasons
    {
      "ssl://0.0.0.0:443" => /asks for TLS/, "https://0.0.0.0" => /asks for TLS/,
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
