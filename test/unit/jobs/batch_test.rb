# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class BatchTest < JobsUnitCase
  class Part
    include Chaton::Job
    def perform(*) = nil
  end

  class Outer
    include Chaton::Job
    def perform = Chaton::Batch.new.jobs { Part.perform_async(1) }
  end

  class Done
    class << self
      attr_accessor :seen
    end

    def on_success(status, options) = Done.seen = [:success, status.bid, status.total, options]
    def later(_, options) = Done.seen = [:later, options]
  end

  def test_jobs_of_the_block_belong_to_the_batch
    batch = Chaton::Batch.new
    batch.description = "all"
    batch.jobs do
      Part.perform_async(1)
      Part.perform_bulk([[2], [3]])
      Part.set(wait: 60).perform_async(4)
    end
    Part.perform_async(5)
    assert_equal [*[batch.bid] * 4, nil], @native.rows.map(&:bid)
    assert_equal [*[batch.bid] * 4, nil], @native.items.map { |item| item["bid"] }
    assert_equal ["all", true], @native.batches[batch.bid].values_at(:description, :closed)
    assert_equal 4, batch.status.total
    refute_predicate batch.status, :complete?
  end

  def test_callbacks_are_jobs
    batch = Chaton::Batch.new.on(:success, Done, "file" => 7).on("death", "BatchTest::Done#later")
    batch.callback_queue = "low"
    batch.jobs { Part.perform_async }
    first, second = @native.batches[batch.bid][:callbacks]
    assert_equal %w[success low], first.first(2)
    assert_equal %w[death low], second.first(2)
    handler.call(FakeJob.new(first.last))
    assert_equal [:success, batch.bid, 1, { "file" => 7 }], Done.seen
    handler.call(FakeJob.new(second.last))
    assert_equal [:later, {}], Done.seen
  end

  def test_a_batch_made_in_a_job_or_in_a_block_is_nested
    outer = Chaton::Batch.new
    inner = nil
    outer.jobs { (inner = Chaton::Batch.new).jobs { Part.perform_async } }
    assert_equal outer.bid, @native.batches[inner.bid][:parent]
    handler.call(FakeJob.new({ "class" => Outer.name, "args" => [], "jid" => "j", "bid" => outer.bid }))
    assert_equal outer.bid, @native.batches.values.last[:parent]
    assert_equal outer.bid, Chaton::Batch.new(inner.bid).parent.bid
  end

  def test_jobs_can_be_added_to_an_existing_batch
    batch = Chaton::Batch.new
    batch.jobs { Part.perform_async }
    Chaton::Batch.new(batch.bid).jobs { Part.perform_async }
    assert_equal 2, batch.status.total
    assert_raises(Chaton::Error) { Chaton::Batch.new(batch.bid).on(:success, Done) }
  end

  def test_jobs_are_pushed_together_at_the_end_of_the_block
    during = nil
    batch = Chaton::Batch.new.jobs do
      3.times { |n| Part.perform_async(n) }
      assert_equal 24, Part.perform_async(3).size
      during = @native.rows.size
    end
    assert_equal [0, 4], [during, @native.rows.size]
    assert_equal 1, @native.calls.count(:push_many)
    assert_equal [0, 1, 2, 3], @native.items.flat_map { |item| item["args"] }
    Chaton::Batch.new(batch.bid).jobs { 2_500.times { |n| Part.perform_async(n) } }
    assert_equal [2_504, 4], [@native.rows.size, @native.calls.count(:push_many)]
  end

  def test_a_unique_job_of_a_batch_is_pushed_at_once_and_tells_whether_it_was
    answers = []
    Chaton::Batch.new.jobs do
      answers = Array.new(2) { Part.set(unique_for: 60).perform_async(1) }
      assert_equal 1, @native.rows.size
    end
    assert_equal [String, NilClass], answers.map(&:class)
  end

  def test_a_batch_whose_block_fails_is_given_up_and_can_be_made_again
    batch = Chaton::Batch.new.on(:success, Done)
    assert_raises(RuntimeError) do
      batch.jobs do
        Part.perform_async(1)
        raise "no"
      end
    end
    assert_empty @native.rows
    assert_empty @native.batches
    Part.perform_async
    assert_nil @native.rows.last.bid
    batch.jobs { Part.perform_async(2) }
    assert_equal [true, 1], [@native.batches[batch.bid][:closed], batch.status.total]
  end

  def test_a_block_that_fails_in_an_existing_batch_leaves_the_batch
    batch = Chaton::Batch.new.jobs { Part.perform_async }
    assert_raises(RuntimeError) { Chaton::Batch.new(batch.bid).jobs { raise "no" } }
    assert_equal 1, batch.status.total
  end

  def test_a_batch_that_was_removed_while_its_block_ran_is_an_error
    error = assert_raises(Chaton::Error) do
      batch = Chaton::Batch.new
      batch.jobs { @native.batch_remove(batch.bid) }
    end
    assert_includes error.message, "make the batch again"
  end

  def test_wrong_events_and_late_callbacks_are_refused
    assert_includes assert_raises(ArgumentError) { Chaton::Batch.new.on(:end, Done) }.message, ":success, :complete"
    assert_raises(ArgumentError) { Chaton::Batch.new.on(:success, Done, key: 1).jobs { nil } }
    assert_includes assert_raises(Chaton::Error) { Chaton::Batch::Status.new("x") }.message, "there is no batch x"
  end
end
