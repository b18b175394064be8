# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class FailuresTest < JobsUnitCase
  class Broken
    include Chaton::Job
    class << self
      attr_accessor :answer, :asked, :exhausted
    end
    retry_in do |count, error, item|
      self.asked = [count, error.message, item["jid"]]
      answer.respond_to?(:call) ? answer.call : answer
    end
    retries_exhausted { |item, error| self.exhausted = [item["jid"], error.message] }
    def perform(text = "boom") = raise(text)
  end

  class Plain
    include Chaton::Job
    def perform = raise("boom")
  end

  class Quiet < Plain
    options retry: false
  end

  def setup
    super
    Broken.answer = Broken.asked = Broken.exhausted = nil
    @reported = []
    @config.death_handlers << ->(item, error) { @reported << [item["jid"], error.message] }
  end

  def test_the_first_failure_sets_retry_count_to_zero
    before = Time.now.to_f
    outcome, at, = run_job(Plain).outcomes.first
    item = run_job(Plain).written
    assert_equal :retry, outcome
    assert_includes (before + 15)..(before + 40), at
    assert_equal ["boom", "RuntimeError", 0, "default"],
                 item.values_at("error_message", "error_class", "retry_count", "queue")
    assert_kind_of Float, item["failed_at"]
    refute item.key?("retried_at")
    refute item.key?("error_backtrace")
    assert_equal 1.5, item["enqueued_at"]
  end

  def test_further_failures_count_up
    one = run_job(Plain, retry_count: 3, failed_at: 5.0)
    assert_equal 4, one.written["retry_count"]
    assert_equal 5.0, one.written["failed_at"]
    assert_kind_of Float, one.written["retried_at"]
    assert_in_delta Time.now.to_f + 256 + 15 + 25, one.outcomes.first[1], 30
  end

  def test_times_are_those_of_the_format
    jobs = Struct.new(:retries_max, :format).new(nil, 8)
    one = job(Plain)
    handler(plan: Struct.new(:jobs).new(jobs)).call(one)
    assert_kind_of Integer, one.written["failed_at"]
  end

  def test_unknown_keys_stay_as_they_are
    one = run_job(Plain, "mine" => { "a" => [1.5, nil] }, "chaton" => { "lock" => "k" })
    assert_equal [{ "a" => [1.5, nil] }, { "lock" => "k" }], one.written.values_at("mine", "chaton")
  end

  def test_a_job_without_retries_left_goes_to_the_dead_set
    { { retry: 2, retry_count: 1 } => :dead, { retry: 2, retry_count: 0 } => :retry, { retry: 0 } => :dead,
      { retry: true, retry_count: 24 } => :dead, { retry: true, retry_count: 23 } => :retry,
      { retry: 0, dead: false } => :discard, { retry: false } => :discard }.each do |fields, outcome|
      assert_equal outcome, run_job(Plain, **fields).outcome, fields.inspect
    end
    assert_equal 5, @reported.size
  end

  def test_a_document_without_retry_uses_the_option_of_the_class
    one = FakeJob.new({ "class" => Quiet.name, "args" => [], "jid" => "j", "queue" => "q" })
    handler.call(one)
    assert_equal :discard, one.outcome
  end

  def test_retry_for_replaces_the_number_of_retries
    now = Time.now.to_f
    assert_equal :retry, run_job(Plain, retry_for: 60, retry: 1, retry_count: 9, failed_at: now - 30).outcome
    assert_equal :dead, run_job(Plain, retry_for: 60, retry_count: 1, failed_at: now - 90).outcome
    assert_equal :dead, run_job(Plain, retry_for: 60, retry_count: 1, failed_at: ((now - 90) * 1000).to_i).outcome
  end

  def test_retry_in_sets_the_delay
    Broken.answer = 100
    one = run_job(Broken)
    assert_in_delta Time.now.to_f + 105, one.outcomes.first[1], 8
    assert_equal [0, "boom", one.jid], Broken.asked
    [0, -5, nil, "soon"].each do |answer|
      Broken.answer = answer
      assert_in_delta Time.now.to_f + 20, run_job(Broken).outcomes.first[1], 8, answer.inspect
    end
    Broken.answer = -> { raise "in retry_in" }
    assert_equal :retry, run_job(Broken).outcome
    assert_includes logged, "in retry_in"
  end

  def test_retry_in_can_kill_and_discard
    Broken.answer = :kill
    assert_equal :dead, run_job(Broken).outcome
    assert_equal %w[b4a577edbccf1d805744efa9 boom], Broken.exhausted
    Broken.answer = :discard
    assert_equal :ack, run_job(Broken).outcome
    assert_equal 2, @reported.size
  end

  def test_changes_by_retries_exhausted_are_kept_unless_they_are_no_json
    klass = Class.new(Plain) { retries_exhausted { |item, _| item["note"] = item["jid"] == "bad" ? "\xff" : "n" } }
    self.class.const_set(:Noted, klass)
    assert_equal "n", run_job(klass, retry: 0).written["note"]
    assert_nil run_job(klass, retry: 0, jid: "bad").written["note"]
  end

  def test_retries_can_go_to_another_queue
    assert_equal "slow", run_job(Plain, retry_queue: "slow").written["queue"]
  end

  def test_a_backtrace_is_kept_if_the_class_asks_for_it
    lines = Chaton::Jobs::ErrorReport.lines(run_job(Plain, backtrace: true).written["error_backtrace"])
    assert_includes lines.first, __FILE__
    two = Chaton::Jobs::ErrorReport.lines(run_job(Plain, backtrace: 2).written["error_backtrace"])
    assert_equal lines.first(2), two
    assert_nil Chaton::Jobs::ErrorReport.lines("nonsense")
  end

  def test_any_message_becomes_valid_json
    assert_equal 10_000, run_job(Broken, "x" * 20_000).written["error_message"].size
    error = RuntimeError.new("caf\xC3 \xff".b)
    assert_predicate Chaton::Jobs::ErrorReport.message(error), :valid_encoding?
    assert_equal "é", Chaton::Jobs::ErrorReport.message(RuntimeError.new("é".encode("ISO-8859-1")))
  end

  def test_error_handlers_are_called_with_as_many_arguments_as_they_take
    calls = []
    @config.error_handlers << ->(error, context) { calls << [error.message, context[:job]["jid"]] }
    @config.error_handlers << ->(_, context, config) { calls << [context[:jobstr].class, config] }
    @config.error_handlers << ->(*) { raise "in a handler" }
    one = run_job(Plain)
    assert_equal [["boom", one.jid], [String, @config]], calls
    assert_equal :retry, one.outcome
    assert_includes logged, "in a handler"
  end

  def test_a_failing_death_handler_does_not_change_the_outcome
    @config.death_handlers.unshift(->(*) { exit })
    assert_equal :dead, run_job(Plain, retry: 0).outcome
    assert_equal 1, @reported.size
  end

  def test_a_failure_is_one_line_in_the_log
    run_job(Plain)
    assert_match(/WARN  job failed  class=FailuresTest::Plain jid=b4a57\h+ queue=default seconds=0\.\d+ /, logged)
    assert_equal 1, logged.lines.size
  end
end
