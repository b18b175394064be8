# frozen_string_literal: true

require "test_helper"
require "chaton/config"

class TypesTest < Minitest::Test
  Types = Chaton::Config::Types

  def assert_refused(type, *values, because: nil)
    error = assert_raises(Types::Mismatch, values.inspect) { type.cast(*values) }
    assert_match because, error.message if because
  end

  def test_numbers
    whole = Types::Number.new(1..10)
    assert_equal [3, 4], [whole.cast(3), whole.cast("4")]
    [0, 11, "x", 1.5, nil, "1.5", "0x3"].each { |value| assert_refused(whole, value) }
    seconds = Types::Number.new(0.1..60.0, unit: "seconds", off: true)
    assert_equal [2.0, 0.5, 0.0, 0.0, 0.0],
                 [seconds.cast(2), seconds.cast("0.5"), seconds.cast(nil), seconds.cast("off"), seconds.cast(0)]
    assert_refused(seconds, -1, because: /must be seconds from 0.1 to 60, or 0 for off, not -1/)
    assert_refused(seconds, Float::NAN)
  end

  def test_networks
    networks = Types::Networks.new
    assert_equal %w[10.0.0.0/8 192.0.2.1/32 2001:db8::/32], networks.cast("10.1.2.3/8", "192.0.2.1", "2001:db8::/32")
    assert_equal Types::Networks::PRIVATE, networks.cast(:private)
    ["localhost", "10.0.0.0/33", "10.0.0", "", nil].each { |value| assert_refused(networks, value) }
    assert_refused(networks, "proxy", because: %r{must be addresses, networks such as 10\.0\.0\.0/8, or private})
  end

  def test_trusted_proxies
    proxies = Types::TrustedProxies.new
    assert_equal [["none"], ["any"], ["10.0.0.0/8"]], [:none, "any", "10.0.0.0/8"].map { |value| proxies.cast(value) }
    assert_equal Types::Networks::PRIVATE, proxies.cast(:private)
    assert_refused(proxies, "privat", because: /not "privat"; did you mean private\?/)
    assert_refused(proxies, :none, "10.0.0.0/8", because: /not "none"/)
    assert_equal ["not set", "none"], [proxies.show(nil), proxies.show(["none"])]
  end

  def test_bytes
    bytes = Types::Bytes.new(1..(1 << 40))
    assert_equal [64, 65_536, 1 << 20, 2 << 30, 1024], ["64", "64K", "1M", "2 GiB", 1024].map { |one| bytes.cast(one) }
    ["", "M", "-1", "1T", nil, 1.5].each { |value| assert_refused(bytes, value) }
    assert_equal ["64 KiB", "1 GiB", "1,000"], [65_536, 1 << 30, 1000].map { |value| bytes.show(value) }
  end

  def test_switches_and_choices
    switch = Types::Switch.new
    assert_equal [true, false, true], [switch.cast, switch.cast("no"), switch.cast(true)]
    assert_refused(switch, "maybe")
    choice = Types::OneOf.new(:human, :json)
    assert_equal :json, choice.cast("json")
    assert_refused(choice, "xml", because: /must be human or json, not "xml"/)
  end

  def test_threads
    type = Types::ThreadRange.new
    { [1..8] => [1, 8, true], [1...8] => [1, 7, true], [5, 5] => [5, 5, true], ["5", "6"] => [5, 6, true],
      [7] => [7, 7, true], ["1:64"] => [1, 64, true], ["2..4"] => [2, 4, true], [0, 16] => [1, 16, true],
      [5..] => [5, 32, false], ["40:"] => [40, 40, false] }.each do |written, expected|
      assert_equal expected, type.cast(*written).to_a, written.inspect
    end
    [["x"], [-1, 3], ["1:x"], [0], [nil], [1, 20_000]].each { |written| assert_refused(type, *written) }
    assert_refused(type, 8, 2, because: /minimum of 8 above the maximum of 2/)
  end

  def test_workers
    type = Types::Workers.new
    assert_equal [{ every: 3 }, { jobs: 1, web: 2 }], [type.cast("3"), type.cast({ jobs: 1, web: 2 })]
    assert_equal({ every: Etc.nprocessors }, type.cast("auto"))
    [-1, "x", nil, 1.5, { web: -1 }, {}, { web: 300, jobs: 300 }].each { |value| assert_refused(type, value) }
    assert_refused(type, { db: 1 }, because: /know no role :db; there are web, jobs and streams/)
  end

  def test_paths
    assert_equal "a", Types::Path.new.cast("a")
    assert_nil Types::Path.new(none: true).cast("none")
    ["", nil, 3, "a\0b"].each { |value| assert_refused(Types::Path.new, value) }
  end
end
