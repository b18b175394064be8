# frozen_string_literal: true

require_relative "support/jobs_unit_case"

class ClientTest < JobsUnitCase
  class Plain
    include Chaton::Job
    options queue: "low", retry: 3, tags: ["x"], source: "web"
  end

  class Unique < Plain
    options unique_for: 60, unique_until: :start, deadline: 5, expires_in: 10
  end

  class Limited
    include Chaton::Job
    options limit: [{ key: ->(user, *) { "user-#{user}" }, concurrency: 2, hold: 9 }, { rate: 10, per: 60 },
                    { key: :api, bucket: 5, per: 1 }]
  end

  class Mark
    def call(klass, item, queue, pool)
      item["seen"] = [klass.to_s, queue, pool]
      item["args"] << "more"
      yield
    end
  end

  class Stop
    def call(*) = false
  end

  def test_a_plain_job_is_written_by_the_native_client
    jid = Plain.perform_async(1, "a")
    assert_match(/\A\h{24}\z/, jid)
    assert_equal [:push_args], @native.calls
    item = @native.items.first
    assert_equal %w[retry queue tags source class args jid created_at enqueued_at], item.keys
    assert_equal [3, "low", ["x"], "web", "ClientTest::Plain", [1, "a"], jid], item.values.first(7)
  end

  def test_an_interval_is_seconds_from_now_or_a_time_and_the_past_is_now
    Plain.perform_in(60, 1)
    Plain.perform_at(Time.now + 120, 1)
    Plain.perform_in(-5, 1)
    Plain.perform_at(Time.at(1_500_000_000), 1)
    now = Time.now.to_f
    times = @native.rows.map(&:at)
    assert_in_delta now + 60, times[0], 5
    assert_in_delta now + 120, times[1], 5
    assert_equal [nil, nil], times.last(2)
  end

  def test_a_retry_takes_over_the_lock_of_its_job_and_is_stored_also_without_it
    first = Unique.perform_async(1)
    second = client.one(Unique.declared, [1], retry_of: first)
    # By now another job has it.
    third = client.one(Unique.declared, [1], retry_of: first)
    assert_equal [first, second, third], @native.items.map { |item| item["jid"] }
    assert_equal [first, second, nil], @native.rows.map { |row| row.lock&.fetch(1) }
  end

  def test_set_changes_options_for_one_push
    Plain.set(queue: "high", retry: false).perform_async(1)
    Plain.set(wait: 60).set("queue" => "other").perform_async(1)
    Plain.set(queue: :high).perform_bulk([[1], [2]])
    assert_equal %w[high other high high], @native.rows.map(&:queue)
    assert_equal false, @native.items[0]["retry"]
    assert_in_delta Time.now.to_f + 60, @native.rows[1].at, 5
    assert_equal "low", Plain.options["queue"]
  end

  def test_a_bulk_push_is_split_into_slices
    jids = Plain.perform_bulk((1..5).map { |number| [number] }, batch_size: 2)
    assert_equal 5, jids.uniq.size
    assert_equal [:push_args] * 3, @native.calls
    Plain.perform_bulk([[1], [2], [3]], at: [10.0, 20, 30.0], batch_size: 2)
    assert_equal [10.0, 20.0, 30.0], @native.rows.last(3).map(&:at)
    assert_raises(ArgumentError) { Plain.perform_bulk([[1]], at: [1, 2]) }
    assert_empty Plain.perform_bulk([])
  end

  def test_lock_expiry_and_deadline_are_in_the_member_chaton
    jid = Unique.perform_async(1)
    assert_nil Unique.perform_async(1), "an equal one is waiting"
    assert Unique.perform_async(2)
    row = @native.rows.first
    extra = row.item["chaton"]
    assert_equal [extra["lock"], jid, 60.0], row.lock
    assert_match(/\AClientTest::Unique:\h{32}\z/, extra["lock"])
    assert_equal ["start", 5.0], extra.values_at("until", "deadline")
    assert_in_delta Time.now.to_f + 10, extra["expires_at"], 5
    assert_empty row.item.keys & Chaton::Jobs::Options::EXTRA
  end

  def test_the_lock_of_a_scheduled_job_counts_from_its_time
    Unique.perform_in(100, 1)
    assert_in_delta 160, @native.rows.first.lock.last, 1
    assert_in_delta Time.now.to_f + 110, @native.items.first["chaton"]["expires_at"], 5
  end

  def test_limits
    Limited.perform_async(7)
    assert_equal [{ "key" => "user-7", "max" => 2, "hold" => 9.0 },
                  { "key" => "ClientTest::Limited", "max" => 10, "per" => 60.0 },
                  { "key" => "api", "max" => 5, "per" => 1.0, "bucket" => true }],
                 @native.items.first["chaton"]["limits"]
    error = assert_raises(ArgumentError) { Plain.set(limit: { rate: 5 }).perform_async }
    assert_includes error.message, "write concurrency: 5, or rate: 10, per: 60"
  end

  def test_client_middleware_sees_and_changes_the_job
    @config.client_middleware { |chain| chain.add Mark }
    Plain.perform_async(1)
    assert_equal({ "seen" => ["ClientTest::Plain", "low", nil], "args" => [1, "more"] },
                 @native.items.first.slice("seen", "args"))
    @config.client_middleware.add Stop
    assert_nil Plain.perform_async(1)
    assert_empty Plain.perform_bulk([[1], [2]])
    assert_equal 1, @native.rows.size
  end

  def test_a_due_job_is_pushed_without_acquiring_its_lock_again
    @config.client_middleware.add Mark
    item = { "class" => "A", "args" => [], "queue" => "q", "jid" => "j", "bid" => "b", "created_at" => 1.5,
             "chaton" => { "lock" => "k" } }
    assert client.push_due(item)
    row = @native.rows.first
    assert_equal ["q", nil, nil, nil], [row.queue, row.at, row.lock, row.bid]
    assert_equal "k", row.item["chaton"]["lock"]
    assert_kind_of Float, row.item["enqueued_at"]
  end

  def test_a_job_that_waits_behind_a_limit_keeps_the_time_at_which_it_was_enqueued
    item = { "class" => "A", "args" => [], "queue" => "q", "jid" => "j", "enqueued_at" => 5.25 }
    assert client.push_due(item.merge("chaton" => { "since" => 6.5 }))
    assert_in_delta 5.25, @native.items.last["enqueued_at"], 0
    assert client.push_due(item)
    assert_operator @native.items.last["enqueued_at"], :>, 6
  end

  def test_hashes_are_pushed_as_by_sidekiqs_client
    jid = client.push("class" => Plain, "args" => [1], "queue" => "other", "jid" => "x" * 24, "mine" => 1)
    assert_equal "x" * 24, jid
    assert_equal ["other", 3, 1], @native.items.first.values_at("queue", "retry", "mine")
    assert_equal 2, client.push_bulk("class" => "Elsewhere", "args" => [[1], [2]], "at" => 5_000_000_000).size
    assert_equal [5_000_000_000.0] * 2, @native.rows.last(2).map(&:at)
    assert_equal "default", @native.items.last["queue"]
    refute @native.items.last.key?("enqueued_at")
    assert_raises(ArgumentError) { client.push("class" => Plain) }
    assert_raises(ArgumentError) { client.push("class" => Plain, "args" => [:x]) }
  end

  # As in Sidekiq: what no worker could run is not stored.
  def test_jobs_that_could_never_run_are_refused
    good = { "class" => Plain, "args" => [1] }
    [{ "queue" => "" }, { "queue" => nil }, { "at" => "2027-01-01" }, { "at" => nil }, { "at" => Float::NAN },
     { "class" => 42 }, { "class" => Plain.new }, { "class" => String }, { "class" => "" }, { "args" => 1 },
     { "args" => [Time.now] }, { "tags" => "x" }, { "retry_for" => Time.now.to_i }].each do |wrong|
      assert_raises(ArgumentError, wrong.inspect) { client.push(good.merge(wrong)) }
    end
    bulk = { "class" => Plain, "args" => [[1], [2]] }
    [{ "queue" => "" }, { "at" => "5" }, { "at" => [1, "2"] }, { "at" => [1] }, { "at" => 1, "spread_interval" => 9 },
     { "spread_interval" => 0 }, { "args" => [1, 2] }, { "jid" => "j" }, { "class" => 42 }].each do |wrong|
      assert_raises(ArgumentError, wrong.inspect) { client.push_bulk(bulk.merge(wrong)) }
    end
    assert_raises(ArgumentError) { Plain.set("queue" => "").perform_async(1) }
    assert_empty @native.rows
  end

  def test_jobs_are_spread_over_an_interval
    client.push_bulk("class" => Plain, "args" => [[1]] * 20, "spread_interval" => 100)
    Plain.perform_bulk([[1]] * 20, spread_interval: 100)
    now = Time.now.to_f
    times = @native.rows.map(&:at)
    assert_equal 40, times.uniq.size
    assert(times.all? { |at| at.between?(now - 60, now + 100) })
    refute @native.items.first.key?("spread_interval")
  end

  def test_arguments_of_a_bulk_push_may_be_lazy
    jids = client.push_bulk("class" => Plain, "args" => (1..5).lazy.map { |number| [number] }, "batch_size" => 2)
    assert_equal [5, 3], [jids.uniq.size, @native.calls.count(:push_many)]
    refute @native.items.first.key?("batch_size")
  end

  def test_times_follow_the_generation_of_the_format
    client(format: 8).push("class" => Plain, "args" => [])
    client(format: 7).push("class" => Plain, "args" => [])
    assert_equal [Integer, Float], @native.items.map { |item| item["created_at"].class }
    assert_equal [Integer, Float], @native.items.map { |item| item["enqueued_at"].class }
  end
end
