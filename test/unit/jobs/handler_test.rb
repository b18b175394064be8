# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class HandlerTest < JobsUnitCase
  class Good
    include Chaton::Job
    class << self
      attr_accessor :seen
    end
    def perform(*args)
      self.class.seen = [args, jid, bid, cancelled?, batch&.bid, Thread.current[:chaton_parent_batch]]
    end
  end

  # No module of anybody's: what a job class needs is `perform`.
  class Bare
    attr_accessor :jid

    def perform = Good.seen = jid
  end

  class Bad
    include Chaton::Job
    def perform(how) = send(how)

    private

    def leave = exit(1)
    def thrown = throw(:somewhere)
    def endless = endless
    def killed = Thread.current.kill
    def memory = raise(NoMemoryError)
    def stopping = raise(Chaton::Jobs::Shutdown)

    def wrapped_stop
      raise Chaton::Jobs::Shutdown
    rescue Chaton::Jobs::Shutdown
      raise "the connection was lost"
    end

    def syntax = raise(SyntaxError, "x")
    def silent = raise(Class.new(StandardError) { def message = raise("no") })
  end

  class Around
    def call(instance, item, queue)
      Good.seen = [instance.class, item["jid"], queue]
      item["args"] = ["other"]
      yield
    end
  end

  class Swallow
    def call(*) = nil
  end

  class BrokenStore < FakeClient
    def push(*) = raise(Chaton::Error, "the store is away")
  end

  def test_a_job_is_run_and_acknowledged
    assert_equal [[:ack]], run_job(Good, 1, "b").outcomes
    assert_equal [[1, "b"], "b4a577edbccf1d805744efa9", nil, false, nil, nil], Good.seen
    assert_equal [[:ack]], run_job(Bare).outcomes
    assert_equal "b4a577edbccf1d805744efa9", Good.seen
    assert_empty logged
  end

  def test_a_job_knows_its_batch_and_that_it_was_cancelled
    handler.call(FakeJob.new({ "class" => Good.name, "args" => [], "jid" => "j", "bid" => "B" }, cancelled: true))
    assert_equal [[], "j", "B", true, "B", "B"], Good.seen
    assert_nil Thread.current[:chaton_parent_batch]
  end

  def test_server_middleware_wraps_the_job
    @config.server_middleware.add(Around)
    assert_equal [[:ack]], run_job(Good, 1).outcomes
    assert_equal ["other"], Good.seen.first
    @config.server_middleware.add(Swallow)
    assert_equal [[:ack]], run_job(Good, 1).outcomes, "as with Sidekiq: not run is not failed"
  end

  def test_every_failure_leads_to_a_retry
    %w[leave thrown endless memory syntax silent nothing_like_that].each do |how|
      assert_equal :retry, run_job(Bad, how).outcome, how
    end
    assert_equal :retry, run_job(Bad, "leave", "too", "many").outcome, "wrong number of arguments"
  end

  def test_a_job_of_an_unknown_class_is_put_back_and_dead_after_a_day
    handler = handler()
    reported = []
    @config.error_handlers << ->(error, _) { reported << error.class }
    outcomes = [true, false, 3].map { |retries| job("Nowhere::AtAll", retry: retries).tap { |one| handler.call(one) } }
    assert_equal [[:put_back]] * 3, outcomes.flat_map(&:outcomes)
    assert_equal 1, logged.scan("class=Nowhere::AtAll").size, "once a minute"
    assert_equal :put_back, run_job("JobTest::String").outcome, "no String from outside"
    assert_empty reported
    document = { "class" => "Nowhere::AtAll", "args" => [], "jid" => "j", "queue" => "q", "retry" => false,
                 "chaton" => { "unknown_since" => 1.0, "lock" => "k" } }
    handler.call(one = FakeJob.new(document, waited: true))
    assert_equal :dead, one.outcome
    assert_includes one.written["error_message"], "there is no class Nowhere::AtAll; load its file"
    assert_equal({ "lock" => "k" }, one.written["chaton"], "by hand it may wait for a day again")
    assert_equal [Chaton::Jobs::UnknownClass], reported
  end

  def test_a_missing_constant_within_a_job_is_a_failure
    assert_equal :retry, run_job(Bad, "nothing_like_that").outcome
  end

  def test_the_job_of_a_killed_thread_gets_an_outcome
    one = job(Bad, "killed")
    Thread.new { handler.call(one) }.join
    assert_equal :retry, one.outcome
    assert_includes one.written["error_message"], "thread was killed"
    Chaton::Jobs.stopping = true
    one = job(Bad, "killed")
    Thread.new { handler.call(one) }.join
    assert_equal [[:requeue]], one.outcomes
  end

  def test_an_interrupted_job_goes_back_uncounted
    assert_equal [[:requeue]], run_job(Bad, "stopping").outcomes
    assert_equal [[:requeue]], run_job(Bad, "wrapped_stop").outcomes
    assert_empty logged
  end

  def test_an_interrupt_that_comes_when_a_job_has_ended_hits_nothing
    handler = self.handler
    one = job(Good, 1)
    interrupts = []
    # Asked last when the job has ended, and by the interrupt itself.
    one.define_singleton_method(:open?) do
      super().tap do |open|
        interrupts << Thread.new { handler.interrupt } unless open || interrupts.any?
        interrupts.first.join if !open && Thread.current != interrupts.first
      end
    end
    2.times { handler.call(one.outcome ? job(Good, 2) : one) }
    assert_equal [[:ack], [2]], [one.outcomes.first, Good.seen.first]
    assert_equal [[one], []], [interrupts.first.value, handler.interrupt]
    assert_empty logged
  end

  def test_a_due_job_is_pushed_after_client_middleware
    one = FakeJob.new({ "class" => "A", "args" => [], "jid" => "j", "queue" => "q" }, due: true)
    handler.call(one)
    assert_equal [[:ack]], one.outcomes
    assert_equal "q", @native.rows.first.queue
    @config.client_middleware.add(Swallow)
    one = FakeJob.new(one.payload, due: true)
    handler.call(one)
    assert_equal [[:discard]], one.outcomes, "its lock and its batch are released"
    assert_equal 1, @native.rows.size
  end

  def test_a_due_job_that_cannot_be_pushed_is_rescheduled
    Chaton::Jobs.swap_client(Chaton::Jobs::Client.new(BrokenStore.new, setup: @config))
    one = FakeJob.new({ "class" => "A", "args" => [], "jid" => "j", "queue" => "q" }, due: true)
    handler.call(one)
    assert_equal :reschedule, one.outcome
    assert_includes logged, "the store is away"
  end

  def test_starts_are_logged_where_debug_is_on
    Chaton::Jobs::Handler.new(log: log(:debug), setup: @config).call(job(Good))
    assert_match(/job started  class=HandlerTest::Good jid=b4a.*\n\z/, logged)
  end
end
