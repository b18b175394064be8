# frozen_string_literal: true

require_relative "support/jobs_unit_case"
require "csv"

class IterableJobTest < JobsUnitCase
  class Each
    include Chaton::IterableJob
    class << self
      attr_accessor :seen, :at
    end

    def build_enumerator(count, cursor:) = array_enumerator((1..count).to_a, cursor: cursor)

    def each_iteration(item, _count)
      Each.seen << item
      Each.at&.call(item, self)
    end

    %w[start resume stop cancel complete].each do |name|
      define_method("on_#{name}") { Each.seen << name.to_sym }
    end
  end

  class Wrong < Each
    def build_enumerator(*, **) = [1]
  end

  class Nothing < Each
    def build_enumerator(*, **) = nil
  end

  def setup
    super
    Each.seen = []
    Each.at = nil
  end

  def test_an_iteration_removes_its_progress_at_the_end
    assert_equal [[:ack]], run_job(Each, 3).outcomes
    assert_equal [:start, 1, 2, 3, :stop, :complete], Each.seen
    assert_empty @native.hashes
  end

  def test_an_iteration_is_interrupted_between_two_items_and_continued
    Each.at = ->(item, _) { Chaton::Jobs.stopping = item == 2 }
    one = run_job(Each, 4)
    assert_equal [[:requeue]], one.outcomes
    assert_equal({ "ex" => "1", "c" => "2" }, @native.hashes["it-#{one.jid}"].slice("ex", "c"))
    Chaton::Jobs.stopping = false
    Each.at = nil
    assert_equal [[:ack]], run_job(Each, 4).outcomes
    assert_equal [:start, 1, 2, :stop, :resume, 3, 4, :stop, :complete], Each.seen
    assert_empty @native.hashes
  end

  def test_a_failure_is_retried_from_the_item_that_failed
    Each.at = ->(item, _) { raise "at #{item}" if item == 2 }
    assert_equal :retry, run_job(Each, 3).outcome
    Each.at = nil
    run_job(Each, 3)
    assert_equal [:start, 1, 2, :resume, 2, 3, :stop, :complete], Each.seen
  end

  def test_a_job_is_cancelled_by_its_jid_from_another_process
    Each.new.tap { |other| other.jid = "j" }.cancel!
    assert_in_delta Time.now.to_i, @native.hashes["it-j"]["cancelled"].to_i, 5
  end

  def test_an_iteration_can_be_cancelled_by_itself_the_engine_and_the_store
    Each.at = ->(item, job) { job.cancel! if item == 2 }
    assert_equal [[:ack]], run_job(Each, 9).outcomes
    assert_equal [:start, 1, 2, :cancel, :stop], Each.seen
    Each.seen = []
    one = FakeJob.new(job(Each, 9).payload, cancelled: true)
    handler.call(one)
    assert_equal [:cancel, :stop], Each.seen
    @native.hashes["it-#{one.jid}"] = { "cancelled" => "1" }
    Each.seen = []
    run_job(Each, 9)
    assert_equal [:cancel, :stop], Each.seen
    assert_empty @native.hashes
  end

  def test_nil_completes_the_job_and_no_enumerator_is_an_error
    assert_equal :ack, run_job(Nothing, 1).outcome
    assert_equal [:stop, :complete], Each.seen
    assert_includes run_job(Wrong, 1).written["error_message"], "must be an Enumerator"
  end

  def test_an_iteration_runs_inline_without_a_store
    Each.perform_inline(2)
    assert_equal [:start, 1, 2, :stop, :complete], Each.seen
    assert_empty @native.hashes
  end

  def test_rows_of_a_csv
    csv = -> { CSV.new("a,1\nb,2\nc,3\n") }
    job = Each.new
    assert_equal [[%w[b 2], 1], [%w[c 3], 2]], job.csv_enumerator(csv.call, cursor: 1).to_a
    assert_equal [[[%w[c 3]], 1]], job.csv_batches_enumerator(csv.call, cursor: 1, batch_size: 2).to_a
    assert_equal 1, job.array_enumerator([1, 2], cursor: 1).size
  end
end
