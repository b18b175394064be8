# frozen_string_literal: true

require_relative "streams_case"

# Commands that write: produce, plan, apply.
class CLIStreamsWritingTest < CLIStreamsCase
  def test_produce_one
    @log.topic("events", partitions: 2)
    assert_equal "1 record written to events, the last to partition 1, offset 0\n",
                 good("produce", "events", "hello", "--key", "k", "--header", "a=1", "--header=b=2=3",
                      "--header", "a=2", "--partition", "1")
    record = @log.records("events", 1).first
    assert_equal ["hello", "k", { "a" => %w[1 2], "b" => "2=3" }], [record.raw, record.key, record.headers]
    assert_equal({ "topic" => "events", "records" => 1, "partition" => 0, "offset" => 0, "created" => false },
                 json("produce", "events", "x"))
  end

  def test_produce_says_that_it_has_created_the_topic
    assert_equal "topic evnts was created; 1 record written to evnts, the last to partition 0, offset 0\n",
                 good("produce", "evnts", "x")
    assert json("produce", "other", "x")["created"]
    assert_match(/\A1 record written/, good("produce", "evnts", "x"))
  end

  def test_produce_lines
    lines = Array.new(1_203) { |number| "line #{number}" }
    with_input(lines.join("\n")) do
      assert_match(/\Atopic events was created; 1,203 records written to events/, good("produce", "events", "-"))
    end
    assert_equal lines, @log.values("events")
    with_input("one\n\n") { good("produce", "more") }
    assert_equal ["one", ""], @log.values("more")
    with_input("") { assert_equal "nothing was written\n", good("produce", "events", "-") }
  end

  def test_produce_a_tombstone
    good("produce", "events", "--tombstone", "--key", "k")
    assert_equal [[nil, "k"]], @log.records("events").map { |record| [record.raw, record.key] }
    assert_match(/needs the key/, bad("produce", "events", "--tombstone"))
    assert_match(/leave "x" out/, bad("produce", "events", "x", "--tombstone", "--key", "k"))
  end

  def test_produce_reports_the_failure
    @log.refuse = ->(row) { ["BufferFull", "the disk is full"] if row[1] == "b" }
    assert_equal "chaton: the disk is full\n", with_input("a\nb\n") { bad("produce", "events", "-") }
    assert_match(/--header must be NAME=VALUE.*not "a"/, bad("produce", "events", "x", "--header", "a"))
  end

  def test_plan_and_apply
    configure(<<~RUBY)
      topic "events", "EventsConsumer", group: "app", partitions: 4, dead_letter: "events.dead"
      topic "audit", partitions: 2, settings: { "retention.ms" => 60_000 }
    RUBY
    @log.topic("events", partitions: 2)
    status, out, = streams("plan")
    assert_equal 2, status
    assert_match(/^grow events: 2 → 4 partitions .*\ncreate audit: 2 partitions, retention.ms=60000$/, out)
    assert_match(/^create events.dead$/, out)
    status, out, = streams("plan", "--json")
    assert_equal [2, %w[grow create create]], [status, JSON.parse(out).map { |change| change["act"] }]
    assert_match(/\Adone: grow events.*\ndone: create audit.*\ndone: create events.dead\n\z/, good("apply"))
    assert_equal [4, 2, 4], %w[events audit events.dead].map { |name| @log.topics[name]["partitions"].size }
    assert_match(/\A3 topics of .* are as declared$/, good("plan"))
    assert_equal [], json("apply")
    @log.topics["audit"]["settings"] = { "retention.ms" => "1" }
    assert_equal "configure audit: retention.ms 1 → 60000\n", streams("plan")[1]
    assert_equal ["configure"], json("apply").map { |change| change["act"] }
    assert_equal({ "retention.ms" => "60000" }, @log.topics["audit"]["settings"])
  end

  def test_impossible_changes_are_reported_after_the_others_are_done
    configure("topic \"events\", partitions: 2\ntopic \"more\", partitions: 1, replication: 3")
    @log.topic("events", partitions: 4)
    status, out, err = streams("apply")
    assert_equal 1, status
    # One machine keeps one copy, whatever is declared.
    assert_equal "done: create more: 1 partitions\n", out
    assert_match(/\Achaton: cannot change events: 2 partitions are declared but it has 4, which cannot be removed/, err)
    assert_equal 2, streams("plan")[0]
  end

  def test_copies_are_compared_where_there_are_some
    kafka = FakeLog.new("kafka://127.0.0.1:9092")
    @logs[kafka.address] = kafka
    configure('topic "events", partitions: 1, replication: 3')
    assert_equal "create events: 1 partitions, replication 3\n", streams("plan", "--broker", kafka.address)[1]
    kafka.topic("events")
    assert_match(/replication 3 is declared but it has 1/, streams("plan", "--broker", kafka.address)[1])
  end
end
