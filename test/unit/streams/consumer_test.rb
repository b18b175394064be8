# frozen_string_literal: true

require_relative "support/streams_unit_case"
require "chaton/testing"

# What a consumer can do, and the helper by which an application tests it.
class StreamsConsumerTest < StreamsUnitCase
  def consume(values, **more, &body)
    Chaton::Testing.consume(Class.new(Chaton::Consumer) { define_method(:consume, &body) }, values, **more)
  end

  def teardown
    Chaton::Testing.clear_produced
    super
  end

  def test_marks
    outcome = consume(%w[a b c d e]) do |batch|
      mark(batch[0])
      mark(1)
      mark(batch[1, 2])
      mark_one(batch.last)
      raise "not all"
    end
    assert_equal [[0, 1, 2, 4], "not all"], [outcome.marked, outcome.error.message]
    assert_predicate outcome, :failed?
    assert_match(/mark takes a record, an offset or a part of a batch/, consume(["a"]) { |_| mark("a") }.error.message)
  end

  def test_where_to_go_on_and_when
    { 12 => 12, :earliest => "earliest", "latest" => "latest", Time.at(1.5) => ["time", 1500] }.each do |to, expected|
      assert_equal [expected, 2.0], consume(["a"]) { |_| pause(2) || seek(to) }.then { |end_of_it|
        [end_of_it.seek, end_of_it.paused_s]
      }
    end
    assert_match(/seek takes an offset/, consume(["a"]) { |_| seek(:middle) }.error.message)
  end

  def test_what_it_knows
    seen = []
    outcome = consume([{ value: "a", offset: 7 }], topic: "orders", partition: 2) do |_|
      seen.push(topic, partition, attempt, revoked?, lag, logger.respond_to?(:info))
    end
    assert_nil outcome.error
    assert_equal ["orders", 2, 1, false, 0, true], seen
    assert_equal "orders", outcome.consumer.topic
  end

  def test_deserializers
    values = ['{"a":"é"}', "\xff", nil, "no json"]
    { json: [{ "a" => "é" }, /is not UTF-8/, nil, /is not JSON: unexpected/],
      string: ['{"a":"é"}', /is not UTF-8/, nil, "no json"] }.each do |name, expected|
      seen = []
      consume(values, deserializer: name) do |batch|
        batch.each do |record|
          seen << record.value
        rescue Chaton::DeserializationError => e
          seen << e.message
        end
      end
      expected.zip(seen).each_with_index do |(one, found), index|
        one.is_a?(Regexp) ? assert_match(%r{test/0 @#{index} .*#{one}}, found) : same(one, found)
      end
    end
  end

  def test_a_deserializer_of_ones_own
    upper = ->(record) { record.raw ? record.raw.upcase : raise(IOError, "empty") }
    seen = []
    outcome = consume(["a", nil], deserializer: upper) { |batch| batch.each { |record| seen << record.value } }
    assert_equal [["A"], Chaton::DeserializationError, IOError], [seen, outcome.error.class, outcome.error.cause.class]
    assert_match(%r{test/0 @1 cannot be read: empty \(IOError\)}, outcome.error.message)
  end

  def test_a_value_is_made_once
    calls = 0
    count = ->(record) { (calls += 1) && record.raw }
    consume(["a"], deserializer: count) { |batch| batch.first.then { |record| record.value + record.value } }
    assert_equal 1, calls
    consume(%w[a b], deserializer: count) { |batch| batch.size + batch.values.size + batch.each_slice(1).count }
    assert_equal 1, calls, "nobody touched one"
  end

  def test_produced
    outcome = consume(%w[a b]) do |batch|
      produce("one", { n: batch.size }, key: 1)
      produce!("two", "x")
      produce_many("two", %w[y z])
    end
    assert_nil outcome.error
    assert_equal %w[one two two two], outcome.produced.map(&:topic)
    assert_equal [{ "n" => 2 }, "1"], outcome.produced.first.then { |record| [record.json, record.key] }
    assert_empty Chaton::Testing.produced
  end

  def test_a_transaction_writes_all_or_nothing
    outcome = consume(%w[a b c]) do |batch|
      answer = transaction do |tx|
        tx.produce(:sums, { n: 1 }, key: "k", headers: { a: 1 })
        tx.produce_many("sums", ["x", { value: "y", key: 2 }])
        tx.mark(batch[1])
        tx.mark(0)
        :answer
      end
      produce("other", answer.to_s)
      transaction do |tx|
        tx.produce("sums", "never")
        raise "no"
      end
    end
    assert_equal "no", outcome.error.message
    assert_equal [["other", "answer"], ["sums", '{"n":1}'], %w[sums x], %w[sums y]],
                 outcome.produced.map { |record| [record.topic, record.value] }
    assert_includes outcome.marked, 1
  end

  def test_transactions_that_make_no_sense
    assert_match(/inside another/, consume(["a"]) { |_| transaction { transaction { nil } } }.error.message)
    klass = Class.new(Chaton::Consumer) { def consume(_batch) = transaction { nil } }
    handler(klass).call(one = fake_batch("a"))
    assert_equal [:failed, "Chaton::ConfigError"], one.outcome.first(2)
    assert_match(/topic "events" is not transactional; write/, one.outcome.last)
    handler(klass, "transactional: true").call(one = fake_batch("a"))
    assert_equal [:done, [[], nil]], [one.outcome, one.transacted]
  end

  def test_a_transaction_is_bounded
    limits = Chaton::Streams::Transaction::Limits.new(2, 100)
    one = Chaton::Streams::Transaction.new(fake_batch("a"), limits)
    2.times { one.produce("a", "b") }
    assert_match(/at most 2 records and 100 bytes/, assert_raises(Chaton::BufferFull) { one.produce("a", "b") }.message)
    two = Chaton::Streams::Transaction.new(fake_batch("a"), limits)
    assert_raises(Chaton::BufferFull) { two.produce("a", "b" * 101) }
  end

  def test_a_filter_needs_a_block
    assert_raises(ArgumentError) { Class.new(Chaton::Consumer) { filter } }
  end

  def test_an_instance_may_go_on
    klass = Class.new(Chaton::Consumer) { def consume(batch) = (@seen ||= []).concat(batch.values) }
    klass.attr_reader(:seen)
    first = Chaton::Testing.consume(klass, ["a"])
    Chaton::Testing.consume(first.consumer, ["b"])
    assert_equal %w[a b], first.consumer.seen
    assert_predicate first, :done?
  end

  # Written for Karafka; only its base class is another.
  class Ported < Chaton::Consumer
    attr_reader :seen

    def consume
      @seen = messages.map { |message| [message.payload["id"], message.raw_payload] }
      @seen << messages.payloads.last << messages.raw_payloads.size << eofed?
      @seen << mark_as_consumed(messages.first) << mark_as_consumed!(messages.last)
    end

    def eofed = (@seen = [:eofed, eofed?])
  end

  def test_a_consumer_of_karafka_runs_unchanged
    outcome = Chaton::Testing.consume(Ported, ['{"id":1}', '{"id":2}'], deserializer: :json)
    assert_nil outcome.error
    assert_equal [[1, '{"id":1}'], [2, '{"id":2}'], { "id" => 2 }, 2, true, true, true], outcome.consumer.seen
    assert_equal [0, 1], outcome.marked
  end

  def test_karafkas_hook_for_the_end_of_a_partition
    one = handler(Ported)
    assert_equal [0], one.of_eof
    seen = Ported.new.tap { |instance| instance.batch = fake_batch(kind: :end) }.eof
    assert_equal [:eofed, true], seen
  end

  def test_a_class_that_is_no_consumer
    error = assert_raises(Chaton::ConfigError) { Chaton::Testing.consume(Class.new(Chaton::Consumer), ["a"]) }
    assert_match(/has no public method consume/, error.message)
    assert_raises(Chaton::ConfigError) { Chaton::Testing.consume(Class.new, ["a"]) }
  end

  def test_records_are_kept_instead_of_written
    Chaton::Testing.streams_fake! do
      assert_predicate Chaton::Testing, :streams_fake?
      receipt = Chaton.produce!("a", "1", key: "k")
      assert_equal [true, true, 0, [], 0, 0], [receipt.wait, receipt.done?, receipt.failed, receipt.errors,
                                               receipt.offset, receipt.partition]
      Chaton.produce_many("b", [{ value: [1] }])
      consume(["x"]) { |_| produce("c", "2") }
      assert_nil Chaton.produce("d", { a: 1 }, key: 7, outbox: true)
    end
    refute_predicate Chaton::Testing, :streams_fake?
    assert_equal %w[a b c d], Chaton::Testing.produced.map(&:topic)
    assert_equal ['{"a":1}', "7"], Chaton::Testing.produced("d").first.to_a[1, 2]
    assert_equal [[1]], Chaton::Testing.produced("b").map(&:json)
    Chaton::Testing.streams_fake!
    Chaton::Testing.clear_produced
    assert_empty Chaton::Testing.produced
  ensure
    Chaton::Testing.streams_disable!
  end

  private

  def same(expected, found) = expected.nil? ? assert_nil(found) : assert_equal(expected, found)
end
