# frozen_string_literal: true

require_relative "jobs_case"
require "support/moving"

# A batch without an engine in Ruby's hands: what is made of its records, and when.
class StreamsBatchTest < Minitest::Test
  include JobsCase
  include Moving

  ROWS = [["one", "k1", { "a" => "1", "b" => nil }, 1_700_000_000_123, 10],
          [nil, nil, nil, -1, 11],
          ["", "", { "twice" => ["x", nil] }, 5, 13]].freeze

  def build(rows = ROWS) = stressed { Chaton::Native::Batch.build("events", 3, rows) }

  def test_a_batch_shows_where_it_is_from
    batch = build
    assert_equal [:records, "events", 3, 3], [batch.kind, batch.topic, batch.partition, batch.size]
    assert_equal [10, 13], [batch.first_offset, batch.last_offset]
    assert_same batch.topic, batch[0].topic
    assert_nil batch.current_offset
    assert batch.open?
    refute batch.revoked? || batch.isolated?
  end

  def test_records_are_read_back_byte_for_byte
    bytes = (0..255).to_a.pack("C*")
    batch = build([[bytes, bytes.reverse, { "h\xff".b => bytes }, 1, 0]])
    record = stressed { batch[0] }
    assert_equal [bytes, bytes.reverse], [record.value, record.key]
    assert_equal Encoding::BINARY, record.value.encoding
    assert_equal [bytes], record.headers.values
  end

  def test_nothing_and_the_empty_string_differ
    first, null, empty = stressed { Array.new(3) { |place| build[place] } }
    assert_equal ["one", "k1", 1_700_000_000_123, 10], [first.value, first.key, first.timestamp_ms, first.offset]
    assert_equal({ "a" => "1", "b" => nil }, first.headers)
    assert_equal [nil, nil, {}, -1], [null.value, null.key, null.headers, null.timestamp_ms]
    refute null.key?
    assert_equal ["", "", { "twice" => ["x", nil] }], [empty.value, empty.key, empty.headers]
    assert empty.key?
  end

  def test_a_value_is_made_once
    batch = build
    made = []
    batch.deserializer = ->(record) { (made << record.offset) && "<#{record.raw}>" }
    record = batch[0]
    assert_same record.value, record.value
    assert_equal ["<one>", [10], "one"], [record.value, made, record.raw]
    made.clear
    batch.deserializer = ->(at) { nil.tap { made << at.offset } }
    nothing = batch[1]
    2.times { assert_nil nothing.value }
    assert_equal [[11], nil], [made, nothing.raw]
  end

  def test_what_a_deserialiser_raises_passes_through_and_comes_again
    batch = build
    batch.deserializer = ->(record) { raise ArgumentError, "at #{record.offset}" }
    record = batch[2]
    2.times { assert_equal "at 13", assert_raises(ArgumentError) { record.value }.message }
  end

  def test_each_tells_where_it_is
    batch = build
    seen = []
    stressed { batch.each { |record| seen << [record.offset, batch.current_offset] } }
    assert_equal [[10, 10], [11, 11], [13, 13]], seen
    assert_nil batch.current_offset
    assert_raises(KeyError) { batch.each { |record| raise KeyError if record.offset == 11 } }
    assert_equal 11, batch.current_offset
  end

  def test_each_can_be_left
    batch = build
    assert_equal(:found, batch.each { |record| break :found if record.offset == 11 })
    assert_equal(11, catch(:out) { batch.each { |record| throw :out, record.offset if record.offset == 11 } })
  end

  def test_a_part_shares_the_records_and_does_not_end_the_batch
    batch = build
    part = batch.slice(1, 10)
    assert_equal [2, 11, 13], [part.size, part.first_offset, part.last_offset]
    assert_equal [13, nil, nil], [part[-1].offset, part[2], batch.slice(4, 1)]
    assert_equal 0, batch.slice(3, 1).size
    assert_raises(ArgumentError) { part.done }
    part = nil
    GC.start
    assert batch.open?
    assert_equal [:done], batch.done
  end

  def test_values_are_given_without_records
    batch = build
    batch.deserializer = ->(_) { raise "must not be called" }
    assert_equal ["one", nil, ""], stressed { batch.values }
    assert_equal [nil, ""], batch.slice(1, 2).values
  end

  def test_it_ends_once
    batch = build
    batch.mark(10)
    batch.pause(1.5)
    batch.seek("earliest")
    batch.failed("KeyError", "no \xff".b)
    refute batch.open?
    [-> { batch.done }, -> { batch.failed("A", "b") }, -> { batch.abandon }].each do |again|
      assert_raises(Chaton::ClosedError, &again)
    end
    calls = batch.calls
    assert_equal [[10], 1.5, "earliest"], calls.values_at(:marked, :paused_s, :seek)
    assert_equal [:failed, "KeyError", "no \u{fffd}"], calls[:outcome]
  end

  def test_former_names_of_methods_still_work
    batch = build
    assert_equal batch.lane, batch.strand
    batch.done
    assert_equal [:done, batch.calls], [batch.outcome[:ending], batch.outcome]
  end

  def test_mistakes_are_named
    batch = build
    assert_match(/not a position in a topic/, assert_raises(ArgumentError) { batch.seek("middle") }.message)
    assert_match(/pause/, assert_raises(ArgumentError) { batch.pause(-1) }.message)
    assert_raises(TypeError) { build([[1, nil, nil, nil, nil]]) }
    assert_raises(TypeError) { build([["v", nil, { 1 => "x" }, nil, nil]]) }
  end

  def test_records_live_longer_than_their_batch
    records = Array.new(3) { build[0] }
    GC.start
    move
    assert_equal %w[one] * 3, records.map(&:value)
    assert_equal %w[k1] * 3, records.map(&:key)
  end

  def test_a_forked_child_reads_and_does_not_end
    batch = build
    read, write = IO.pipe
    child = fork do
      said = begin
        batch.done
      rescue Chaton::ForkedError
        batch[0].value
      end
      write.write(said)
      exit!(0)
    end
    write.close
    assert_equal "one", read.read
    Process.wait(child)
    assert_equal [:done], batch.done
  end
end
