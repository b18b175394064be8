# frozen_string_literal: true

require_relative "support/jobs_unit_case"
require "chaton/testing"

class TestingTest < JobsUnitCase
  class Counted
    include Chaton::Job
    class << self
      attr_accessor :seen
    end
    def perform(value)
      Counted.seen << value
      Counted.perform_async(value - 1) if value.positive?
    end
  end

  class Other < Counted; end

  def setup
    super
    Counted.seen = []
    Chaton::Testing.clear_all
  end

  def teardown
    Chaton::Testing.disable!
    super
  end

  def test_jobs_wait_in_memory_until_they_are_drained
    Chaton::Testing.fake!
    jid = Counted.perform_async(2)
    Other.perform_in(60, 0)
    assert_equal([jid], Counted.jobs.map { |item| item["jid"] })
    assert_kind_of Float, Other.jobs.first["at"]
    Counted.drain
    assert_equal [2, 1, 0], Counted.seen
    assert_equal 1, Chaton::Testing.jobs.size
    Chaton::Testing.drain_all
    assert_equal [2, 1, 0, 0], Counted.seen
    assert_raises(Chaton::Testing::EmptyQueueError) { Counted.perform_one }
    Counted.perform_bulk([[5], [6]])
    Counted.clear
    assert_empty Counted.jobs
  end

  def test_jobs_run_inline_when_they_are_enqueued
    Chaton::Testing.inline! { Counted.perform_async(1) }
    assert_equal [1, 0], Counted.seen
    assert_predicate Chaton::Testing, :disabled?
  end

  def test_modes_apply_during_a_block_and_leave_the_store_alone
    Chaton::Testing.fake! do
      Chaton::Testing.inline! { assert_predicate Chaton::Testing, :inline? }
      assert_predicate Chaton::Testing, :fake?
      Counted.perform_async(0)
      assert_raises(ArgumentError) { Counted.perform_async(:x) }
    end
    assert_empty @native.rows
    Counted.perform_async(0)
    assert_equal 1, @native.rows.size
  end

  def test_batches_count
    Chaton::Testing.fake! do
      batch = Chaton::Batch.new
      batch.jobs { Counted.perform_async(0) }
      assert_equal 1, batch.status.total
    end
  end
end
