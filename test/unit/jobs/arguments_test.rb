# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class ArgumentsTest < Minitest::Test
  class Text < String; end

  def test_values_that_json_brings_back_pass
    [[], [nil, true, false, 1, 2**80, 1.5, "ä", [1, [2]], { "a" => { "b" => [nil] } }], ["x".b]].each do |args|
      Chaton::Jobs::Arguments.check("A", args)
      pass
    end
  end

  def test_other_values_are_refused_with_their_path
    { [:x] => "Job arguments to A must come back equal from JSON, but :x is a Symbol (argument 1); use a String",
      [1, { "a" => [0, :x] }] => ':x is a Symbol (argument 2["a"][1])',
      [{ a: 1 }] => "but :a is a Symbol (a key of argument 1); use a String",
      [{ 1 => 2 }] => "1 is a Integer (a key",
      [Time.at(0)] => "use its to_f or iso8601", [Float::NAN] => "use a finite number",
      [Text.new("x")] => "is a ArgumentsTest::Text", [Object.new] => "pass an id or plain values instead",
      ["\xff"] => "is no UTF-8 text", ["\xff".b] => "encode binary data as Base64",
      ["ä".encode("UTF-16LE")] => "UTF-16LE" }.each do |args, message|
      error = assert_raises(ArgumentError) { Chaton::Jobs::Arguments.check("A", args) }
      assert_includes error.message, message
    end
  end

  def test_too_deep_nesting_is_refused
    deep = (1..100).inject([]) { |inner, _| [inner] }
    error = assert_raises(ArgumentError) { Chaton::Jobs::Arguments.check("A", [deep]) }
    assert_includes error.message, "nested more than 100 deep"
    assert_raises(ArgumentError) { Chaton::Jobs::Arguments.check("A", "x") }
  end
end
