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

  def test_a_batch_whose_block_fails_stays_open
    batch = Chaton::Batch.new
    assert_raises(RuntimeError) { batch.jobs { raise "no" } }
    refute @native.batches[batch.bid][:closed]
    Part.perform_async
    assert_nil @native.rows.last.bid
  end

  def test_wrong_events_and_late_callbacks_are_refused
    assert_includes assert_raises(ArgumentError) { Chaton::Batch.new.on(:end, Done) }.message, ":success, :complete"
    assert_raises(ArgumentError) { Chaton::Batch.new.on(:success, Done, key: 1).jobs { nil } }
    assert_includes assert_raises(Chaton::Error) { Chaton::Batch::Status.new("x") }.message, "there is no batch x"
  end
end
