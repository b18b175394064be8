# frozen_string_literal: true

require_relative "support/store_jobs"
require_relative "../../support/postgres_server"
require_relative "../../support/redis_server"

# What a job class can ask for, from `perform_async` to its end, on each store that there is.
module StoresTests
  include StoreJobs

  def test_arguments_arrive_as_they_were_given
    args = ["ä", 1, -2**70, 1.5, nil, true, [["x"]], { "a" => { "b" => [nil] } }]
    start
    Note.perform_async(*args)
    eventually { Seen.seen == [args] }
  end

  def test_a_scheduled_job_waits_for_its_time
    Note.perform_in(600, "later")
    Note.perform_in(0.1, "soon")
    assert_equal 2, stats.scheduled
    start
    eventually { Seen.seen == [["soon"]] }
    assert_equal 1, stats.scheduled
    assert_in_delta 600, Chaton::Jobs::ScheduledSet.new(@native).first.at - Time.now, 30
  end

  def test_many_are_run_once_each
    jids = Note.perform_bulk((1..2_500).map { |number| [number] })
    assert_equal 2_500, jids.uniq.size
    start
    eventually { Seen.seen.size >= 2_500 }
    assert_equal (1..2_500).to_a, Seen.seen.flatten.sort
    eventually { stats.in_flight.zero? }
  end

  def test_a_failed_job_waits_for_its_retry_and_can_be_requeued
    start
    jid = Broken.perform_async(1)
    retries = Chaton::Jobs::RetrySet.new(@native)
    eventually { retries.size == 1 }
    record = retries.first
    assert_equal [jid, 0, "boom", "RuntimeError"],
                 [record.jid, *record.item.values_at("retry_count", "error_message", "error_class")]
    assert_includes record.error_backtrace.first, "store_jobs.rb"
    assert record.retry
    eventually { retries.first&.[]("retried_at") }
    assert_equal 0, retries.first["retry_count"], "as with Sidekiq, a retry by hand is not counted"
    assert retries.first.kill
    dead = Chaton::Jobs::DeadSet.new(@native)
    assert_equal jid, dead.find_job(jid).jid
    assert dead.first.delete
    refute Chaton::Jobs::JobRecord.new(@native, "dead", [0.0, 0, record.payload]).delete
  end

  def test_after_the_last_retry_a_job_is_dead
    start
    jid = Broken.set(retry: 0).perform_async(1)
    dead = Chaton::Jobs::DeadSet.new(@native)
    eventually { dead.size == 1 }
    assert_equal [jid, "boom"], [dead.first.jid, dead.first["error_message"]]
    Broken.set(retry: 0, dead: false).perform_async(2)
    Broken.set(retry: false).perform_async(3)
    eventually { stats.enqueued.zero? && stats.in_flight.zero? }
    assert_equal [1, 0], [dead.size, stats.retries]
  end

  def test_an_equal_job_is_refused_until_the_first_has_ended
    first = Unique.perform_async(1)
    assert first
    assert_nil Unique.perform_async(1)
    assert Unique.perform_async(2)
    start
    eventually { Seen.seen.size == 2 }
    eventually { Unique.perform_async(1) }
  end

  def test_a_lock_may_end_when_the_job_starts
    Early.perform_async(1)
    assert_nil Early.perform_async(1)
    start
    eventually { Seen.seen.size >= 2 }
    assert_includes Seen.seen, [String], "while it runs the next one may be stored"
  end

  def test_no_more_run_at_once_than_the_limit_allows
    Narrow.perform_bulk((1..6).map { |number| [number] })
    start
    eventually { Seen.seen.size == 12 }
    assert(Seen.seen.each_slice(2).all? { |(_, one), (_, two)| one == two })
  end

  def test_an_expired_job_is_not_started
    Stale.perform_async("stale")
    eventually { Time.now.to_f > Chaton::Jobs::Queue.new("default", @native).first["chaton"]["expires_at"] }
    Note.perform_async("fresh")
    start
    eventually { Seen.seen == [["fresh"]] }
    eventually { stats.enqueued.zero? && stats.in_flight.zero? }
  end

  def test_a_running_job_can_be_cancelled
    start
    jid = Long.perform_async
    eventually { Seen.seen == [[:began]] }
    @native.cancel(jid)
    eventually { Seen.seen == [[:began], [:cancelled]] }
  end

  def test_a_running_job_sees_the_end_of_its_deadline
    start
    Short.perform_async
    eventually { Seen.seen == [[:began], [:cancelled]] }
  end

  def test_an_iteration_is_continued_by_another_worker
    Steps.perform_async(5)
    start
    eventually { Seen.seen.size >= 3 }
    stop
    assert_equal [[1], [2], [3]], Seen.seen
    Chaton::Jobs.stopping = false
    start
    eventually { Seen.seen.last == [:complete] || Seen.seen.size > 9 }
    assert_equal [[1], [2], [3], [4], [5], [:complete]], Seen.seen.uniq
  end

  def test_the_callbacks_of_a_batch_run_at_its_end
    batch = Chaton::Batch.new.on(:success, Callbacks, "n" => 1).on(:complete, Callbacks).on(:death, Callbacks)
    batch.jobs { Note.perform_bulk([[1], [2]]) }
    start
    eventually { Seen.seen.size == 4 }
    assert_equal [[1], [2], [:complete, 0], [:success, 2, 0, { "n" => 1 }]], Seen.seen.sort_by(&:inspect)
    assert_predicate batch.status, :success?
  end

  def test_the_death_callback_of_a_batch_runs
    batch = Chaton::Batch.new.on(:success, Callbacks).on(:complete, Callbacks).on(:death, Callbacks)
    batch.jobs { Broken.set(retry: 0).perform_async }
    start
    eventually { Seen.seen.size == 2 }
    assert_equal [[:complete, 1], [:death]], Seen.seen.sort_by(&:inspect)
    refute_predicate batch.status, :success?
    assert_predicate batch.status, :dead?
  end

  def test_a_batch_that_is_made_again_waits_for_its_own_nested_batch
    batch = Chaton::Batch.new.on(:success, Callbacks)
    assert_raises(RuntimeError) do
      batch.jobs do
        Chaton::Batch.new.jobs { Note.perform_async("of the first block") }
        raise "no"
      end
    end
    batch.jobs { Chaton::Batch.new.jobs { Broken.set(retry: 0).perform_async } }
    start
    eventually { Seen.seen.any? && stats.dead == 1 && stats.in_flight.zero? }
    assert_equal [["of the first block"]], Seen.seen
    refute_predicate batch.status, :success?
  end

  def test_middleware_sees_a_due_job_again
    @config.client_middleware.add(Mark)
    Note.perform_in(0.05, 1)
    start(claim_due: true)
    eventually { Seen.seen == [[1, "marked", "marked"]] }
    eventually { stats.in_flight.zero? }
  end
end

class RedisStoreTest < EngineCase
  include StoresTests

  SERVER = RedisServer.new({ "appendonly" => "no" })

  def self.server = @server ||= SERVER.start.tap { Minitest.after_run { SERVER.close } }

  def setup
    self.class.server.call("FLUSHALL")
    super
  end

  def url = SERVER.url
end

class PostgresStoreTest < EngineCase
  include StoresTests

  def setup
    @database = PostgresServer.shared.create_database
    super
  end

  def url = PostgresServer.shared.url(@database)
end

class SqliteStoreTest < EngineCase
  include StoresTests

  def setup
    @folder = Dir.mktmpdir
    super
  end

  def teardown
    super
    FileUtils.remove_entry(@folder)
  end

  def url = "sqlite://#{@folder}/jobs.db"
end
