# frozen_string_literal: true

require_relative "jobs_case"
require "support/streams_log"
require "tmpdir"

# Records from the embedded log through the engine, a native_pool and a seat into Ruby's hands, and back.
class StreamsEngineTest < Minitest::Test
  include JobsCase

  # Records of the longer tests.
  RECORDS = STRESS ? 60 : 2_000

  def setup
    @dir = Dir.mktmpdir("chaton-streams")
  end

  def teardown
    stop if @engine
    FileUtils.remove_entry(@dir)
  end

  def test_what_is_produced_is_consumed
    # The configuration is loaded before: half a minute under stress, and no boundary.
    to = client
    receipt = stressed { to.produce("events", "value", "key", { "h" => "1" }, 2, 1_700_000_000_000, 5.0) }
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
    start(", backoff: 0.001, backoff_max: 0.001")
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

  def test_wrong_settings_of_the_engine_are_named_with_their_path
    document = JSON.parse(self.document(", throttle: [10, 1]"))
    streams = document["streams"]
    group = streams["groups"].first
    { "streams" => streams, "streams.groups.0" => group, "streams.groups.0.group" => group["group"],
      "streams.groups.0.routes.0" => group["routes"].first,
      "streams.groups.0.routes.0.throttle" => group["routes"].first["throttle"] }.each do |path, settings|
      settings.to_a.each do |name, value|
        settings.delete(name)
        assert_equal "settings: #{path}.#{name}: missing field", engine_refused(document)
        settings[name] = value
      end
    end
    group["routes"].first["order"] = "none"
    assert_match(/\Asettings: streams\.groups\.0\.routes\.0\.order: unknown variant/, engine_refused(document))
    assert_equal "settings: streams: missing section", engine_refused(document.except("streams"))
  end

  def test_wrong_settings_of_the_log_are_named_with_their_path
    log = JSON.parse(StreamsLog.document("log:///x"))
    assert_match(/\Asettings: streams\.log\.brokr: unknown field, expected/, refused({ **log, brokr: 1 }))
    log.each_key do |name|
      assert_equal "settings: streams.log.#{name}: missing field", refused(log.except(name))
    end
    assert_raises(Chaton::StreamRefused) { open_log(JSON.generate({ **log, "broker" => "http://x" })) }
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

  def client = @client ||= open_log(StreamsLog.document("log://#{@dir}", durable: false))

  def open_log(document) = Chaton::Native::StreamsClient.new(document)

  # To one partition, and durable.
  def produce(*values)
    client.produce_many(values.map { |value| ["events", value, nil, nil, 0] }, 5.0).wait(JobsCase::WAIT_S)
  end

  # The settings of a process that consumes events, with these further keywords of the topic.
  def document(keywords)
    config = File.join(@dir, "chaton.rb")
    File.write(config, "streams { topic 'events', 'Events', group: 'app'#{keywords} }")
    Chaton::Config.load({ config_file: config }, env: {}).engine_document(roles: [:streams], slot: 0)
  end

  def start(keywords = "")
    @native_pool = pool(document(keywords))
    @pool_thread = @native_pool.enter
    @engine = Chaton::Native::Streams.start(@native_pool, client, [], nil, nil).tap(&:resume)
  end

  def stop
    @engine.stop
    @pool_thread.leave
    @native_pool.close
    @native_pool.shut
  end

  def pool(document) = Chaton::Native::Pool.new(document, Chaton::Native::Scoreboard.new(1), nil)

  def engine_refused(document)
    pool = pool(JSON.generate(document))
    assert_raises(ArgumentError) { Chaton::Native::Streams.start(pool, client, [], nil, nil) }.message
  ensure
    pool&.shut
  end

  def refused(log) = assert_raises(ArgumentError) { open_log(JSON.generate(log)) }.message

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
