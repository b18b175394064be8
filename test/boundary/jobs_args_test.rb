# frozen_string_literal: true

require_relative "jobs_case"
require "chaton/jobs/arguments"
require "set"

# Arguments to JSON and back, against Ruby's own JSON.
class JobsArgsTest < Minitest::Test
  include JobsCase

  GOOD = [
    nil, true, false, 0, -1, 2**31, 2**62, -(2**62) - 1, 2**63, (2**64) - 1, 2**64, -(2**63), 10**40, -(10**25),
    0.0, -0.0, 1.5, -1.5, 0.1, 1e-4, 1e-5, 1.23e-7, 1e14, 1e15, 1e16, 123_456_789_012_345.6, 1_000_000_000_000_000.5,
    9_007_199_254_740_993.0, 9.2e18, 1e19, 1e22, 1e23, 1e100, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308,
    Math::PI, "", "a", "é", "日本語", "😀", "\u0000\u0001\u001f\u007f", "\b\f\n\r\t\"\\/", "\u2028\u2029", "x" * 5_000,
    "ascii".encode("US-ASCII"), "ascii".b, [], [[]], [nil, [1, [2.5, ["x"]]]], {}, { "" => 1 },
    { "a" => { "b" => [{}] } },
    { "é" => 1, "b\"\\\n" => nil }, (0..40).to_h { |n| ["key#{n}", n] }
  ].freeze

  # A float is written as Float#to_s does; the json gem has done so up to its version 2.9.
  def test_arguments_are_written_as_by_json
    GOOD.each do |value|
      text = value.is_a?(Float) ? value.to_s : JSON.generate(value)
      assert_includes pushed([value]), %("args":[#{text}],), value.inspect
    end
  end

  def test_random_floats_are_written_as_ruby_writes_them
    random = Random.new(1)
    floats = Array.new(2_000) { [random.bytes(8).unpack1("D"), random.rand * (10**random.rand(-8..20))] }
    floats = floats.flatten.select(&:finite?)
    written = pushed(floats)[/"args":\[(.*?)\]/, 1].split(",")
    # Of two texts that are as short and as near, either brings the number back.
    wrong = floats.map(&:to_s).zip(written).reject do |expected, actual|
      expected.size == actual.size && (expected.to_f - actual.to_f).zero?
    end
    assert_empty wrong.first(5)
  end

  def test_nesting_up_to_the_limit
    assert_includes pushed([nested(100)]), nested(100).to_s.delete(" ")
    assert_bad [nested(101)], /argument 1(\[0\]){100} is nested more than 100 deep/
    endless = []
    endless << endless
    assert_bad endless, /is nested more than 100 deep/
  end

  def test_other_values_are_refused_with_rubys_messages
    bad = [:x, 1..2, Object, Float::NAN, -Float::INFINITY, 1r, 1i, Time.at(0), Set[1], "\xff", "\xff".b,
           "é".encode("ISO-8859-1"), "a".encode("UTF-16LE"),
           *[String, Array, Hash].map { |kind| Class.new(kind).new },
           Struct.new(:a).new(1), { a: 1 }, { 1 => 2 }, { nil => 1 }, { "a" => [1, { "b" => :c }] }, ["x", [:y]],
           ("a".."zz").to_a.map(&:to_sym)[0, 20], { "a" => ("y" * 100).to_sym }]
    bad.each do |value|
      expected = assert_raises(ArgumentError) { Chaton::Jobs::Arguments.check("A", [1, value]) }.message
      actual = assert_raises(ArgumentError) { client.push_args("q", head, [[1, value]], nil) }.message
      assert_equal expected, actual
    end
    assert_empty documents
  end

  def test_a_key_that_is_no_text_is_named
    assert_bad [{ "\xff" => 1 }], /xFF.* is no UTF-8 text \(a key of argument 1\)/
  end

  def test_an_error_in_one_of_many_jobs_names_the_job
    error = assert_raises(ArgumentError) { client.push_args("q", head, [[1], [2], [3, :x]], nil) }
    assert_match(/\AJob arguments to A \(job 3 of 3\) must .*, but :x is a Symbol \(argument 2\)/, error.message)
    assert_empty documents
  end

  def test_an_error_of_inspect_is_raised
    strange = Class.new { def inspect = raise(IOError, "no") }.new
    assert_raises(IOError) { client.push_args("q", head, [[strange]], nil) }
  end

  def test_writing_under_stress
    stressed { client.push_args("q", head, [GOOD.first(20), [{ "a" => [10**30, "é", 1.5] }]], nil) }
    assert_equal [GOOD.first(20), [{ "a" => [10**30, "é", 1.5] }]], documents.map { |job| job["args"] }
  end

  private

  # @return [String] the document
  def pushed(args)
    client.clear("queue:q", 0)
    client.push_args("q", head, [args], nil)
    client.list("queue:q", 0, 1)[0][2]
  end

  def nested(depth) = (1..depth).reduce(nil) { |inner, _| inner.nil? ? [] : [inner] }

  def assert_bad(args, message)
    error = assert_raises(ArgumentError) { client.push_args("q", head, [args], nil) }
    assert_match message, error.message
  end
end
