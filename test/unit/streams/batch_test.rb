# frozen_string_literal: true

require_relative "support/streams_unit_case"

# A batch is like an Array, also one that filters have chosen from.
class StreamsBatchTest < StreamsUnitCase
  # @yieldparam batch [#each] of "a" to "e" with the offsets 10 to 14
  def both
    rows = %w[a b c d e].each_with_index.map { |value, index| [value, "k#{index}", nil, nil, 10 + index] }
    yield batch(*rows)
    others = batch(*rows, ["x", nil, nil, nil, 15])
    yield Chaton::Streams::Selection.of(others) { |record| record.raw != "x" }
  end

  def test_counting
    both do |batch|
      assert_equal [5, 5, 5, false, 2], [batch.size, batch.length, batch.count, batch.empty?,
                                         batch.count { |record| record.raw < "c" }]
      assert_equal [10, 14, %w[a b c d e], batch.values], [batch.first_offset, batch.last_offset, batch.values,
                                                           batch.payloads]
    end
    assert_empty batch
    none = batch
    assert_equal [nil, nil, nil, nil, []], [none.first, none.last, none[0], none.first_offset, none.values]
  end

  def test_places_and_parts
    reference = %w[a b c d e]
    both do |batch|
      [-6, -5, -1, 0, 4, 5].each { |place| same(reference[place], batch[place]&.raw) }
      [0..1, 1..-2, 3.., ..2, -2.., 5.., 6.., 2...4, 3..1, -9..1, 0...-1, nil..nil].each do |range|
        same(reference[range], batch[range]&.values, range)
        same(reference[range], batch.slice(range)&.values, range)
      end
      [[0, 2], [4, 9], [5, 1], [6, 1], [-2, 1], [1, 0], [1, -1]].each do |pair|
        same(reference[*pair], batch[*pair]&.values, pair)
        same(reference[*pair], batch.slice(*pair)&.values, pair)
      end
      assert_equal "c", batch.slice(2).raw
    end
  end

  def test_ends
    both do |batch|
      assert_equal %w[a e], [batch.first.raw, batch.last.raw]
      assert_equal [%w[a b], %w[d e], [], %w[a b c d e]],
                   [batch.first(2), batch.last(2), batch.last(0), batch.first(9)].map(&:values)
      [-1, "2"].each { |count| assert_raises(ArgumentError) { batch.first(count) } }
    end
  end

  def test_going_through_it
    both do |batch|
      assert_equal %w[a b c d e], batch.each.map(&:raw)
      assert_equal %w[a b c d e], batch.to_a.map(&:value)
      assert_equal 5, batch.each.size
      assert_same batch, batch.each(&:offset)
      assert_equal [%w[a b], %w[c d], %w[e]], batch.each_slice(2).map(&:values)
      assert_equal [3, 3], [batch.each_slice(2).size, batch.each_slice(2).to_a.size]
      assert_raises(ArgumentError) { batch.each_slice(0) }
      assert_equal %w[b d], batch.lazy.select { |record| record.offset.odd? }.map(&:raw).to_a
      assert_equal [["a", 0], ["b", 1]], batch.first(2).each_with_index.map { |record, index| [record.raw, index] }
    end
  end

  def test_it_tells_where_one_is
    both do |batch|
      assert_nil batch.current_offset
      batch.each { |record| break if record.raw == "c" }
      assert_equal 12, batch.current_offset
      batch.each(&:offset)
      assert_nil batch.current_offset
    end
  end

  def test_for_people
    assert_equal "#<Chaton::Native::Batch events/3 @0-1, 2 records>", batch("a", "b").inspect
    assert_equal "#<Chaton::Native::Record events/3 @0>", batch("a").first.inspect
    assert_equal "#<Chaton::Native::Batch events/3, 0 records>", batch.inspect
    assert_equal "#<Chaton::Streams::Selection events/3 @1-1, 1 records>",
                 Chaton::Streams::Selection.of(batch("a", "b")) { |record| record.raw == "b" }.inspect
  end

  def test_a_record
    record = batch(["v", "k", { "h" => "1", "i" => %w[2 3] }, 1_500, 7]).first
    assert_equal ["v", "v", "k", { "h" => "1", "i" => %w[2 3] }, 7, "events", 3, 1500, Time.at(1.5)],
                 [record.value, record.raw, record.key, record.headers, record.offset, record.topic, record.partition,
                  record.timestamp_ms, record.timestamp]
    empty = batch([nil]).first
    assert_equal [nil, nil, nil, {}, nil], [empty.value, empty.raw, empty.key, empty.headers, empty.timestamp]
  end

  private

  def same(expected, found, what = nil)
    expected.nil? ? assert_nil(found, what.inspect) : assert_equal(expected, found, what.inspect)
  end
end
