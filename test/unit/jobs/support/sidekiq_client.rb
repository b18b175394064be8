# frozen_string_literal: true

require_relative "names_case"

# What Sidekiq's client, job classes and tests can do.
class SidekiqClientTest < NamesCase
  # Stops jobs with an even first argument.
  class Odd
    def call(_klass, job, _queue, pool)
      Listed.seen << pool
      yield if job["args"].first.odd?
    end
  end

  def test_middleware_of_one_client
    client = Sidekiq::Client.new
    client.middleware { |chain| chain.add Odd }
    jids = client.push_bulk("class" => Listed, "args" => [[1], [2], [3]])
    assert_equal [false, true, false], jids.map(&:nil?)
    assert_nil client.push("class" => Listed, "args" => [2])
    assert Sidekiq::Client.push("class" => Listed, "args" => [2]), "other clients have their own"
    assert_empty Sidekiq.client_middleware.to_a
  end

  def test_the_applications_own_pool
    error = assert_raises(NotImplementedError) { Sidekiq.redis { flunk } }
    assert_match(/ConnectionPool/, error.message)
    pool = Class.new { def with = yield(:connection) }.new
    Sidekiq.redis = pool
    assert_equal(:connection, Sidekiq.redis { |connection| connection })
    client = Sidekiq::Client.new
    client.middleware { |chain| chain.add Odd }
    client.push("class" => Listed, "args" => [1])
    assert_same pool, Listed.seen.last
  end

  def test_arguments_that_json_changes
    error = assert_raises(ArgumentError) { Listed.perform_async(:x) }
    assert_equal "Job arguments to Listed must come back equal from JSON, but :x is a Symbol (argument 1); " \
                 "use a String", error.message
    Sidekiq.strict_args!(false)
    Listed.perform_async(:x)
    Listed.perform_bulk([[:x]])
    Listed.set(retry: 1).perform_async(:x)
    Listed.perform_in(-1, :x)
    Sidekiq::Client.push("class" => Listed, "args" => [:x])
    Sidekiq::Client.push_bulk("class" => Listed, "args" => [[{ x: Date.new(2026, 1, 1) }]])
    assert_equal [*[["x"]] * 5, [{ "x" => "2026-01-01" }]], Sidekiq::Queue.new("low").map(&:args)
    assert_raises(ArgumentError) { Listed.perform_async(Float::NAN) }
    Listed.perform_inline(:x)
    assert_equal ["x"], Listed.seen.last.first
  end

  def test_warned_of_arguments_are_stored
    output = StringIO.new
    Sidekiq.logger = Logger.new(output)
    Sidekiq.strict_args!(:warn)
    Listed.perform_async("fine")
    assert_empty output.string
    Listed.perform_async(:x)
    assert_match(/WARN.*:x is a Symbol/, output.string)
    assert_equal 2, Sidekiq::Queue.new("low").size
  end

  def test_old_names_say_what_to_call
    { delay: "perform_async", delay_for: "perform_in", delay_until: "perform_at" }.each do |old, new|
      assert_includes assert_raises(ArgumentError) { Listed.public_send(old, 1) }.message, "call .#{new}"
    end
  end

  def test_a_job_asks_whether_its_worker_stops
    job = Listed.new
    refute_predicate job, :interrupted?
    job._context = Struct.new(:stopping?).new(true)
    assert_predicate job, :interrupted?
  end

  def test_attributes_of_a_class_are_inherited
    child = Class.new(Listed)
    assert_same Listed.seen, child.seen
    child.seen = [1]
    assert_equal [[], [1], [1]], [Listed.seen, child.seen, child.new.seen]
  end
end

class SidekiqTestingTest < NamesCase
  def teardown
    Sidekiq::Testing.disable!
    Sidekiq::Queues.clear_all
    super
  end

  def test_a_mode_of_a_block_is_that_of_its_thread
    Sidekiq::Testing.inline! do
      assert_predicate Sidekiq::Testing, :inline?
      refute(Thread.new { Sidekiq::Testing.enabled? }.value)
      assert_raises(Sidekiq::Testing::TestModeAlreadySetError) { Sidekiq::Testing.fake! { flunk } }
    end
    assert_predicate Sidekiq::Testing, :disabled?
  end

  def test_lists_of_jobs_are_always_the_same
    Sidekiq::Testing.fake!
    of_class, of_queue = Listed.jobs, Sidekiq::Queues["low"]
    Listed.perform_async(1)
    Listed.perform_in(60, 2)
    assert_equal [2, 2], [of_class.size, of_queue.size]
    assert_equal [true, false], of_class.map { |job| job.key?("enqueued_at") }
    of_class.last["args"] = ["changed"]
    Listed.perform_one
    Listed.drain
    assert_equal [[1], ["changed"]], Listed.seen.map(&:first)
    assert_empty of_class + of_queue
    assert_raises(Sidekiq::EmptyQueueError) { Listed.perform_one }
    Listed.perform_async(3)
    of_class.clear
    assert_empty Sidekiq::Job.jobs
  end
end
