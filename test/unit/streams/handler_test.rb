# frozen_string_literal: true

require_relative "support/streams_unit_case"

class StreamsHandlerTest < StreamsUnitCase
  # Does what its topic's first value says.
  class Bad < Chaton::Consumer
    def consume(batch) = send(batch.first.raw)

    private

    def nothing = nil
    def leave = exit(1)
    def thrown = throw(:somewhere)
    def endless = endless
    def memory = raise(NoMemoryError)
    def syntax = raise(SyntaxError, "x")
    def silent = raise(Class.new(StandardError) { def message = raise("no") })
    def killed = Thread.current.kill
    def stopping = raise(Chaton::Streams::Shutdown)

    def wrapped_stop
      raise Chaton::Streams::Shutdown
    rescue Chaton::Streams::Shutdown
      raise "the connection was lost"
    end
  end

  def test_a_batch_is_consumed_and_done
    seen = []
    klass = Class.new(Chaton::Consumer) do
      define_method(:consume) { |batch| batch.each { |record| seen << [record.value, topic, attempt] } }
    end
    one = fake_batch("a", "b", attempt: 2)
    handler(klass).call(one)
    assert_equal [["a", "events", 2], ["b", "events", 2]], seen
    assert_equal [:done], one.outcomes
    assert_empty logged
  end

  def test_values_are_deserialized_when_they_are_touched
    seen = []
    klass = Class.new(Chaton::Consumer) do
      define_method(:consume) { |batch| seen << batch.size << batch.first.value << batch.last.raw }
    end
    one = fake_batch('{"a":1}', "no json")
    handler(klass, "deserializer: :json").call(one)
    assert_equal [2, { "a" => 1 }, "no json"], seen
    assert_equal :done, one.outcome
  end

  def test_a_failure_says_where_it_happened_and_what_follows
    klass = Class.new(Chaton::Consumer) do
      def consume(batch) = batch.each { |record| raise "boom" if record.raw == "b" }
    end
    { [:retry, 1.25, 2] => "a batch failed; it is retried",
      [:isolated, 0.5] => "its records are retried one by one",
      [:dead_letter, "events.dead"] => "it becomes a dead letter",
      [:dropped] => "its records are read again",
      [:done] => "all of its records were marked" }.each do |verdict, sentence|
      @output.truncate(0)
      one = fake_batch(["a", nil, nil, nil, 10], "b", "c", verdict: verdict)
      handler(klass).call(one)
      assert_equal [:failed, "RuntimeError", "boom"], one.outcome
      assert_match(/ERROR .*#{sentence}/, logged)
      assert_match(/topic=events partition=3 offsets=10-12 offset=11 attempt=1 seconds=0\.\d+/, logged)
      assert_match(/error=RuntimeError reason=boom\n    .*handler_test/, logged)
    end
  end

  def test_what_follows_is_in_the_log
    handler(Bad).call(fake_batch("memory", verdict: [:retry, 1.25, 2]))
    assert_match(/consumer=StreamsHandlerTest::Bad .*retry_in_s=1.25 next_attempt=2/, logged)
    handler(Bad).call(fake_batch("memory", verdict: [:dead_letter, "events.dead"]))
    assert_match(/to=events.dead/, logged)
  end

  def test_whatever_a_consumer_does_its_batch_is_ended
    %w[leave thrown endless memory syntax silent nothing_like_that].each do |how|
      one = fake_batch(how)
      handler(Bad).call(one)
      assert_equal :failed, one.outcome.first, how
    end
  end

  def test_a_consumer_that_cannot_be_made
    klass = Class.new(Chaton::Consumer) { def consume(_batch) = nil }
    klass.define_method(:initialize) { raise "not today" }
    one = fake_batch("a")
    handler(klass).call(one)
    assert_equal [:failed, "RuntimeError", "not today"], one.outcome
  end

  def test_a_killed_thread_gives_its_batch_back
    one = fake_batch("killed")
    Thread.new { handler(Bad).call(one) }.join
    assert_equal [:abandoned], one.outcomes
    assert_match(/a thread was killed while it ran a batch/, logged)
  end

  def test_an_interrupted_batch_has_not_failed
    %w[stopping wrapped_stop].each do |how|
      one = fake_batch(how)
      handler(Bad).call(one)
      assert_equal [:abandoned], one.outcomes, how
    end
    assert_empty logged
  end

  def test_a_consumer_may_end_its_batch_itself
    klass = Class.new(Chaton::Consumer) { def consume(batch) = batch.abandon || (raise("late") if batch.size > 1) }
    [%w[a], %w[a b]].each do |values|
      one = fake_batch(*values)
      handler(klass).call(one)
      assert_equal [:abandoned], one.outcomes
    end
    assert_match(/a consumer failed after it had ended its batch itself .*reason=late/, logged)
  end

  def test_consumers_that_run_can_be_interrupted
    began = Queue.new
    gate = Queue.new
    klass = Class.new(Chaton::Consumer) do
      define_method(:consume) do |_batch|
        began << true
        gate.pop
      end
    end
    handler = handler(klass)
    one = fake_batch("a")
    thread = Thread.new { handler.call(one) }
    began.pop
    assert_equal [one], handler.interrupt
    thread.join
    assert_equal [[:abandoned], []], [one.outcomes, handler.interrupt]
  end

  def test_a_child_out_of_a_consumer_ends_nothing
    klass = Class.new(Chaton::Consumer) do
      def consume(batch)
        pid = fork
        return Process.wait(pid) if pid

        raise "in the child" if batch.first.raw == "fails"
      end
    end
    %w[fails passes].each do |how|
      one = fake_batch(how)
      handler(klass).call(one)
      assert_equal [:done], one.outcomes, how
    end
  end

  def test_filters_are_inherited_and_what_they_refuse_is_done
    seen = []
    parent = Class.new(Chaton::Consumer) { filter { |record| record.key && limit } }
    klass = Class.new(parent) do
      filter { |record| record.offset < limit }
      def limit = 12
      define_method(:consume) { |batch| seen << [batch.size, batch.map(&:offset), batch.first_offset, lag] }
    end
    one = fake_batch(["a", "k", nil, nil, 10], ["b"], %w[c k], %w[d k], end_offset: 20)
    handler(klass).call(one)
    assert_equal [[1, [10], 10, 6]], seen
    assert_equal [11, 12, 13], one.calls[:marked]
    none = fake_batch("x")
    handler(klass).call(none)
    assert_equal [1, :done], [seen.size, none.outcome], "nothing is left to consume"
  end

  def test_a_filter_that_fails_fails_the_batch
    klass = Class.new(Chaton::Consumer) do
      filter { |record| record.offset == 1 ? raise("odd") : true }
      def consume(_batch) = nil
    end
    one = fake_batch("a", "b")
    handler(klass).call(one)
    assert_equal [:failed, "RuntimeError", "odd"], one.outcome
    assert_match(/offset=1 /, logged)
  end

  def test_error_handlers_are_told
    calls = []
    Chaton::Streams.error_handlers << ->(*) { raise "in a handler" }
    Chaton::Streams.error_handlers << ->(error, facts) { calls << [error.class, facts] }
    handler(Bad).call(fake_batch("memory", verdict: [:retry, 1.0, 2]))
    assert_equal NoMemoryError, calls.first[0]
    assert_equal ["events", 3, [:retry, 1.0, 2]], calls.first[1].values_at(:topic, :partition, :verdict)
    assert_match(/in a handler/, logged)
  end

  def test_ends_are_logged_where_debug_is_on
    handler(Bad, level: :debug).call(fake_batch("nothing"))
    assert_match(/DEBUG batch done  consumer=StreamsHandlerTest::Bad batch=.*records=1 seconds=0\.\d+$/, logged)
  end
end
