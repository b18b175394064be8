# frozen_string_literal: true

require_relative "jobs_case"
require "tmpdir"

# Records from the embedded log through the engine, a native_pool and a seat into Ruby's hands, and back.
class StreamsEngineTest < Minitest::Test
  include JobsCase

  POOL = JobsEngineCase::POOL
  # Records of the longer tests.
  RECORDS = STRESS ? 60 : 2_000

  def setup
    @dir = Dir.mktmpdir("chaton-streams")
    @native_pool = Chaton::Native::Pool.new(JSON.generate({ pool: POOL }), Chaton::Native::Scoreboard.new(1), nil)
    @pool_thread = @native_pool.enter
  end

  def teardown
    @engine&.stop
    @pool_thread.leave
    @native_pool.close
    @native_pool.shut
    FileUtils.remove_entry(@dir)
  end

  def test_what_is_produced_is_consumed
    receipt = stressed { client.produce("events", "value", "key", { "h" => "1" }, 2, 1_700_000_000_000, 5.0) }
    assert receipt.wait(JobsCase::WAIT_S)
    assert_equal [true, 0, 2, 0, []], [receipt.done?, receipt.failed, receipt.partition, receipt.offset, receipt.errors]
    start
    batch = take
    record = stressed { batch[0] }
    assert_equal ["events", 2, "value", "key", { "h" => "1" }, 1_700_000_000_000, 0],
                 [record.topic, record.partition, record.value, record.key, record.headers, record.timestamp_ms,
                  record.offset]
    assert_equal [:done], batch.done
    settled
    assert_equal [["events", 2, 1]], committed
  end

  def test_batches_arrive_in_order_and_whole
    client.produce_values("events", Array.new(RECORDS, &:to_s), 5.0).wait(JobsCase::WAIT_S)
    start
    values = Hash.new { |hash, partition| hash[partition] = [] }
    until values.sum { |_, found| found.size } == RECORDS
      batch = take
      stressed { batch.each { |record| values[batch.partition] << record.value.to_i } }
      batch.done
    end
    assert_equal (0...RECORDS).to_a, values.values.flatten.sort
    values.each_value { |found| assert_equal found.sort, found }
    settled
    assert_equal RECORDS, @engine.stats[:totals][:records]
  end

  def test_a_failure_comes_again
    produce("a", "b")
    start(backoff_ms: 1, backoff_max_ms: 1)
    batch = take
    assert_equal [:retry, 2], batch.failed("KeyError", "why").values_at(0, 2)
    again = take
    assert_equal [2, %w[a b]], [again.attempt, again.values]
    again.mark(again.first_offset)
    again.failed("KeyError", "why")
    last = take
    # It is the first time that this one stands in the way.
    assert_equal [2, %w[b]], [last.attempt, last.values]
    last.done
  end

  def test_a_batch_that_is_dropped_comes_again
    produce("a")
    start
    batch = take
    assert_equal 1, batch.attempt
    batch.abandon
    again = take
    assert_equal [1, %w[a]], [again.attempt, again.values]
    again.done
  end

  def test_records_and_commits_are_written_in_one
    produce("a", "b")
    start
    batch = take
    batch.transact([["results", "A", nil, { "from" => "a" }, 0], ["results", "B", nil, nil, 0]], batch.last_offset)
    assert_equal [["events", 0, 2]], committed
    batch.done
    results = read("results")
    assert_equal %w[A B], results.map(&:value)
    assert_equal({ "from" => "a" }, results[0].headers)
  end

  def test_a_reader_waits_and_can_be_interrupted
    produce("a")
    reader = client.reader("events", 0, "latest")
    thread = Thread.new { reader.next(10, 600.0) }
    Thread.pass until thread.stop?
    produce("b")
    assert_equal %w[b], thread.value.values
    thread = Thread.new { reader.next(10, 600.0) }
    Thread.pass until thread.stop?
    thread.kill
    assert thread.join(JobsCase::WAIT_S)
    assert_nil reader.next(10, 0.0)
    produce("c")
    reader.close
    assert_nil reader.next(10, 0.0)
    reader.close
  end

  def test_the_admin_speaks_json
    admin("do" => "create", "name" => "wide", "partitions" => 3)
    topic = admin("do" => "topic", "name" => "wide")
    assert_equal [0, 1, 2], topic["partitions"].map { |one| one["number"] }
    assert_nil admin("do" => "topic", "name" => "nothing")
    assert_match(/the call/, assert_raises(Chaton::InvalidRecord) { admin("do" => "dance") }.message)
  end

  def test_wrong_settings_are_named
    error = assert_raises(ArgumentError) { Chaton::Native::StreamsClient.new('{"broker":"log:///x","brokr":1}') }
    assert_match(/brokr/, error.message)
    assert_raises(Chaton::LogRefused) { Chaton::Native::StreamsClient.new('{"broker":"http://x"}') }
  end

  def test_a_forked_child_opens_the_log_for_itself
    produce("a")
    child = fork do
      written = client.produce("events", "b", nil, nil, 0, nil, 5.0).wait(JobsCase::WAIT_S)
      exit!(written ? 0 : 1)
    end
    assert_equal 0, Process.wait2(child).last.exitstatus
    assert_equal %w[a b], read("events").map(&:value)
  end

  private

  def client
    @client ||= Chaton::Native::StreamsClient.new(JSON.generate(broker: "log://#{@dir}", durable: false))
  end

  # To one partition, and durable.
  def produce(*values)
    client.produce_many(values.map { |value| ["events", value, nil, nil, 0] }, 5.0).wait(JobsCase::WAIT_S)
  end

  def start(**route)
    engine = { groups: [{ group: { name: "app", topics: ["events"] }, routes: [{ topic: "events", **route }] }] }
    @engine = Chaton::Native::Streams.start(@native_pool, client, JSON.generate(engine))
  end

  def take = Timeout.timeout(JobsCase::WAIT_S) { @pool_thread.take }

  def settled = assert(@engine.wait_idle(JobsCase::WAIT_S))

  def admin(call) = JSON.parse(client.admin(JSON.generate(call)))

  def committed
    admin("do" => "committed", "group" => "app").map { |one| one.values_at("topic", "partition", "offset") }
  end

  def read(topic)
    reader = client.reader(topic, 0, "earliest")
    found = []
    while (batch = reader.next(100, found.empty? ? JobsCase::WAIT_S : 0.0))
      found += Array.new(batch.size) { |place| batch[place] }
    end
    found
  end
end
