# frozen_string_literal: true

require "test_helper"
require "delegate"
require "chaton/memory/string_dedup"

class StringDedupTest < Minitest::Test
  # Overridden methods of a subclass are not called.
  class Wilful < Array
    %i[any? map! frozen? equal? class].each { |name| define_method(name) { |*| raise "called #{name}" } }
  end

  class WilfulHash < Hash
    %i[any? transform_values! each_key frozen? equal? key? []=].each do |name|
      define_method(name) { |*| raise "called #{name}" }
    end
  end

  class Wily < BasicObject
    def initialize(text) = @text = text
    def __text = @text
    def method_missing(name, *) = ::Kernel.raise("called #{name}")
    def respond_to_missing?(*) = true
    def equal?(*) = ::Kernel.raise("called equal?")
  end

  Row = Struct.new(:name)

  module Holder
    NAMED = "named, and made anew"[0..].freeze
    autoload :Missing, "/there/is/no/such/file.rb"
    def self.const_missing(name) = raise("asked for #{name}")
  end

  def test_of_equal_frozen_strings_one_is_left
    rows = Array.new(3) { |number| { id: number, country: text, tags: [text, "mine"] } }
    merged = quietly.merged
    strings = rows.flat_map { |row| [row[:country], row[:tags].first] }
    assert_same_object(*strings)
    assert_equal text, strings.first
    assert_operator merged, :>=, 5
  end

  def test_instance_variables_are_rewritten
    first, second = Array.new(2) { Object.new.tap { |object| object.instance_variable_set(:@name, text) } }
    quietly
    assert_same_object(first.instance_variable_get(:@name), second.instance_variable_get(:@name))
  end

  def test_no_code_of_the_application_is_called
    array = Wilful.new.push(text, text)
    hash = WilfulHash.new.tap { |made| made.store(:a, text) }
    wily = Wily.new(text)
    delegate = SimpleDelegator.new([text])
    result = quietly
    assert_nil result.note
    assert_same_object(array.first, array.last, hash.fetch(:a), wily.__text, delegate.first)
  end

  def test_strings_that_are_not_plain_or_not_frozen_stay
    odd = Class.new(String).new(text).freeze
    loose = +text
    marked = (+text).tap { |string| string.instance_variable_set(:@mark, 1) }.freeze
    kept = [odd, loose, marked]
    kinds = kept.map(&:object_id)
    quietly
    assert_equal kinds, kept.map(&:object_id)
  end

  def test_frozen_containers_stay_as_they_are
    name = text
    frozen = [[name].freeze, { a: name }.freeze, Object.new.tap { |o| o.instance_variable_set(:@n, name) }.freeze]
    quietly
    assert_same_object(name, frozen[0][0], frozen[1][:a], frozen[2].instance_variable_get(:@n))
  end

  # Code may compare these by identity.
  def test_strings_used_by_identity_stay
    key = text
    weak_key = text
    by_identity = { key => 1 }.compare_by_identity
    weak = ObjectSpace::WeakMap.new.tap { |map| map[weak_key] = key }
    holders = [[key], [weak_key], [Holder::NAMED]]
    quietly
    assert_equal 1, by_identity[holders[0].first]
    assert weak.key?(holders[1].first)
    assert_same Holder::NAMED, holders[2].first
  end

  def test_encodings_are_kept_apart
    holder = [text, text.dup.force_encoding(Encoding::BINARY).freeze]
    quietly
    assert_equal [Encoding::UTF_8, Encoding::BINARY], holder.map(&:encoding)
  end

  def test_nothing_is_rewritten_where_there_is_little_to_gain
    holder = [text, text]
    result = Chaton::Memory::StringDedup.new(share_min: 1.0).merge
    assert_match(/less than 100.0 % of all objects/, result.note)
    assert_operator result.found, :>=, 1
    assert_operator result.bytes, :>, 0
    refute_same(*holder)
  end

  def test_nothing_is_rewritten_while_a_thread_runs
    holder = [text, text]
    going = true
    runner = Thread.new { nil while going }
    assert_equal "threads are running", merge.note
    refute_same(*holder)
  ensure
    going = false
    runner.join
  end

  def test_it_stops_at_the_time_limit
    holder = [text, text]
    assert_equal "stopped after 0.0 s of processor time", merge(time_s: 0.0).note
    assert_equal 2, holder.size
  end

  def test_a_deprecated_constant_is_read_without_a_warning
    holder = Module.new { const_set(:OLD, +"old") && deprecate_constant(:OLD) }
    warned = Warning[:deprecated]
    Warning[:deprecated] = true
    assert_output("", "") { merge }
    assert Warning[:deprecated]
    refute_nil holder
  ensure
    Warning[:deprecated] = warned
  end

  private

  def merge(**options) = Chaton::Memory::StringDedup.new(share_min: 0.0, time_s: 30, **options).merge

  # The time limit of a test has a thread, which may not sleep yet.
  def quietly
    Thread.pass until (Thread.list - [Thread.current]).all?(&:stop?)
    merge
  end

  # Another String at each call.
  def text = "a text of boot, longer than a slot".dup.freeze

  def assert_same_object(first, *others) = others.each { |other| assert_same first, other }
end
