# frozen_string_literal: true

require "test_helper"
require "chaton"
require "chaton/config"
require "chaton/workload"
require "chaton/workload/code"
require "chaton/telemetry/log"
require "fileutils"
require "stringio"
require "timeout"
require "tmpdir"

# The workload with the role streams, over a real log in a directory, in this process.
class StreamsRoleTest < Minitest::Test
  # Longest wait for anything.
  WAIT_S = 30

  # Notes its records, and does what their values say.
  class Events < Chaton::Consumer
    class << self
      attr_accessor :seen, :gate
    end

    def consume(batch)
      batch.each do |record|
        Events.seen << [record.value, partition, attempt]
        act_on(record)
      end
    end

    def eof = Events.seen << [:eof, partition]
    def shutdown = Events.seen << [:shutdown, partition]

    private

    def act_on(record)
      case record.value
      when "fail" then raise "as asked"
      when "once" then raise "only once" if attempt == 1
      when "wait" then Events.gate.pop
      when "pass" then produce("out", "passed", key: record.key)
      end
    rescue Chaton::Streams::Shutdown
      Events.seen << [:interrupted, partition]
      raise
    end
  end

  def setup
    @root = Dir.mktmpdir("chaton-streams")
    Events.seen = Queue.new
    Events.gate = Queue.new
    @output = StringIO.new
    @log = Chaton::Telemetry::Log.new(io: @output)
  end

  def teardown
    5.times { Events.gate << true }
    @workload&.stop(0)
    Chaton::Streams.use(nil)
    FileUtils.remove_entry(@root)
  end

  def test_a_record_is_consumed_once
    start
    Chaton.produce!("events", "a", key: "k")
    assert_equal ["a", 1], value_seen.values_at(0, 2)
    status = @workload.status
    assert_equal [[:streams], "app"], [status[:roles], status[:streams][:groups].first[:name]]
    assert stop(5)
    start
    Chaton.produce!("events", "b", key: "k")
    assert_equal "b", value_seen[0], "the first one was committed"
  end

  def test_a_failed_batch_is_tried_again_and_then_goes_to_the_dead_letters
    start
    Chaton.produce!("events", "once", key: "k")
    assert_equal [1, 2], [value_seen[2], value_seen[2]]
    Chaton.produce!("events", "fail", key: "k", headers: { "h" => "1" })
    letter = read("events.dead")
    assert_equal ["fail", "k", "1", "events", "RuntimeError", "as asked", "app"],
                 [letter.value, letter.key, *letter.headers.values_at("h", "source_topic", "error_class",
                                                                      "error_message", "source_consumer_group")]
    assert_match(/becomes a dead letter .*offset=\d+ .*to=events.dead/, @output.string)
  end

  def test_a_consumer_may_produce
    start
    Chaton.produce!("events", "pass", key: "k")
    assert_equal %w[passed k], read("out").then { |record| [record.value, record.key] }
  end

  def test_hooks_run_at_the_end_of_a_partition_and_of_the_process
    start
    Chaton.produce!("events", "a", key: "k")
    place = value_seen[1]
    assert_equal [:eof, place], pop_until { |entry| entry == [:eof, place] }
    assert stop(5)
    assert_equal [:shutdown, place], entry_of(:shutdown)
  end

  def test_batches_that_do_not_end_in_time_are_interrupted_and_read_again
    start
    Chaton.produce!("events", "wait", key: "k")
    assert_equal "wait", value_seen[0]
    refute stop(0.05)
    assert_equal :interrupted, entry_of(:interrupted)[0]
    assert_match(/interrupted batches are read again.*count=1/, @output.string)
    Events.gate << true
    start
    assert_equal ["wait", 1], value_seen.values_at(0, 2)
  end

  def test_a_quiet_service_fetches_no_more
    start
    @workload.quiet_intake
    @workload.quiet_intake
    Chaton.produce!("events", "a", key: "k")
    assert_equal 1, @output.string.scan("no more records are fetched").size
    assert stop(5)
    refute_includes Array.new(Events.seen.size) { popped }.map(&:first), "a"
  end

  def test_nothing_is_fetched_before_the_process_is_ready
    start do
      # Durable: joining takes no longer.
      3.times { Chaton.produce!("events", "a", key: "k") }
      groups, totals = @workload.status.fetch(:streams).values_at(:groups, :totals)
      assert_equal [[false], 0], [groups.map { |group| group[:connected] }, totals[:fetches]]
      assert_empty Events.seen
    end
    assert_equal "a", value_seen.first
    assert stop(5)
  end

  private

  def start(&ready)
    @workload = nil
    path = File.join(@root, "chaton.rb")
    File.write(path, <<~RUBY)
      streams do
        topic "events", "StreamsRoleTest::Events", group: "app", retries: 1, backoff: 0.01, dead_letter: "events.dead"
        threads 1..3
        constants_for_tests log_partitions: 2
      end
    RUBY
    plan = Chaton::Config.load({ config_file: path, streams: true }, env: {}, root: @root)
    plan = plan.of_process([:streams])
    Chaton::Workload::Code.load(plan, [:streams], log: @log)
    context = Chaton::Workload::ProcessContext.new(roles: [:streams], scoreboard: Chaton::Native::Scoreboard.new(1),
                                                   slot: 0)
    @workload = Chaton::Workload.new(plan, app: nil, sockets: [], context: context, log: @log)
    @workload.start(&ready)
  end

  def stop(deadline_s)
    @workload.stop(deadline_s)
  ensure
    @workload = nil
  end

  # The first record of any partition of a topic.
  def read(topic)
    Timeout.timeout(WAIT_S) do
      loop do
        2.times do |partition|
          batch = Chaton::Streams.client.native.reader(topic, partition, "earliest").next(1, 0.05)
          return batch.first if batch
        rescue Chaton::UnknownTopic
          next
        end
      end
    end
  end

  def popped = Timeout.timeout(WAIT_S, nil, @output.string) { Events.seen.pop }

  # The next record, past entries of hooks.
  def value_seen = pop_until { |entry| !entry[0].is_a?(Symbol) }

  def entry_of(what) = pop_until { |entry| entry[0] == what }

  def pop_until
    loop do
      entry = popped
      return entry if yield entry
    end
  end
end
