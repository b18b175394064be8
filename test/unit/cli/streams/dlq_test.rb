# frozen_string_literal: true

require_relative "streams_case"

# chaton streams dlq …
class CLIStreamsDlqTest < CLIStreamsCase
  BYTES = "\xFF\x00\r\n".b

  def setup
    super
    configure('topic "events", "EventsConsumer", group: "app", dead_letter: "events.dead"')
    @log.topic("events", partitions: 2)
    @log.topic("events.dead")
  end

  def letter(value, partition: 1, topic: "events", **own)
    cause = { "source_topic" => topic, "source_partition" => partition.to_s, "source_offset" => "7",
              "source_consumer_group" => "app", "source_attempts" => "6", "error_class" => "IOError",
              "error_message" => "no\nluck", "failed_at" => "2026-01-31T12:00:00Z" }
    @log.produce_many([["events.dead", value, "k", { **own.transform_keys(&:to_s), **cause }, 0, nil]], 1)
  end

  def test_list
    assert_equal "topic        waiting\nevents.dead        0\n", good("dlq", "list")
    3.times { |number| letter("v#{number}") }
    assert_equal [{ "topic" => "events.dead", "waiting" => 3 }], json("dlq", "list")
    text = good("dlq", "list", "events.dead", "--count", "2")
    assert_match(%r{^events.dead/0 @0  events/1 @7  app +6 +2026-01-31T12:00:00Z  k +IOError: no luck$}, text)
    assert_equal 3, text.lines.size
    assert_equal %w[v0 v1 v2], json("dlq", "list", "events.dead").map { |one| one["value"] }
    assert_equal "events", json("dlq", "list", "events.dead").first["source_topic"]
    @log.commit("chaton-dlq", "events.dead", [3])
    assert_equal "nothing waits there\n", good("dlq", "list", "events.dead")
  end

  def test_replay_sends_records_back_as_they_were
    letter(BYTES, trace: "t1")
    letter(nil)
    assert_equal "2 to events; 0 still wait in events.dead\n", good("dlq", "replay", "events.dead")
    assert_equal [[BYTES, "k", { "trace" => "t1" }], [nil, "k", {}]],
                 @log.records("events", 1).map { |record| [record.raw, record.key, record.headers] }
    assert_equal [2, ""], @log.commits["chaton-dlq"][["events.dead", 0]]
    assert_equal "nothing waits in events.dead\n", good("dlq", "replay", "events.dead")
  end

  def test_a_letter_without_its_value_is_not_sent_back_as_a_tombstone
    letter("a")
    letter(nil, source_value_bytes: "2000000")
    letter("c")
    error = bad("dlq", "replay", "events.dead")
    assert_match(%r{events.dead/0 @1 has no value: .*too large \(2000000 bytes\). The record is at events/1 @7}, error)
    assert_match(/chaton streams seek chaton-dlq events.dead --partition 0 --to 2/, error)
    assert_equal(["a"], @log.records("events", 1).map(&:raw))
    good("seek", "chaton-dlq", "events.dead", "--partition", "0", "--to", "2")
    good("dlq", "replay", "events.dead")
    assert_equal(%w[a c], @log.records("events", 1).map(&:raw))
  end

  def test_an_original_header_with_an_added_name_stays
    letter("v", trace: "t")
    @log.records("events.dead").first.headers["error_class"] = %w[mine IOError]
    good("dlq", "replay", "events.dead")
    assert_equal({ "trace" => "t", "error_class" => "mine" }, @log.records("events", 1).first.headers)
  end

  def test_some_of_them_and_elsewhere
    letter("a")
    letter("b", partition: 9)
    letter("c")
    assert_equal({ "topic" => "events.dead", "replayed" => 1, "to" => { "events" => 1 }, "waiting" => 2 },
                 json("dlq", "replay", "events.dead", "--count", "1"))
    # A partition that is no more: by the key.
    good("dlq", "replay", "events.dead", "--count", "1")
    assert_equal %w[a b], [*@log.values("events", 0), *@log.values("events", 1)].sort
    @log.topic("again")
    assert_equal "1 to again; 0 still wait in events.dead\n", good("dlq", "replay", "events.dead", "--to", "again")
  end

  def test_progress_stops_at_records_that_are_not_durable
    %w[a b c].each { |value| letter(value) }
    @log.refuse = ->(row) { ["StreamUnavailable", "the broker is away"] if row[1] == "b" }
    status, _, err = streams("dlq", "replay", "events.dead")
    assert_equal [1, "chaton: the broker is away (1 were sent back before that)\n"], [status, err]
    assert_equal [1, ""], @log.commits["chaton-dlq"][["events.dead", 0]]
    @log.refuse = nil
    good("dlq", "replay", "events.dead")
    # b once, c twice: it had gone when b failed.
    assert_equal %w[a c b c], @log.values("events", 1)
  end

  def test_a_record_without_an_origin_needs_a_topic
    letter("a")
    good("produce", "events.dead", "stray")
    assert_match(%r{events.dead/0 @1 does not tell its topic; name one: --to TOPIC \(1 were sent back},
                 bad("dlq", "replay", "events.dead"))
    good("dlq", "replay", "events.dead", "--to", "events")
    assert_equal "stray", @log.values("events").first
    letter("b", topic: "gone")
    assert_match(/has no topic "gone"/, bad("dlq", "replay", "events.dead"))
  end

  def test_mistakes
    assert_match(/list or replay is missing: chaton streams dlq list \[TOPIC\] \| replay TOPIC/, bad("dlq"))
    assert_match(/no command "reply"; did you mean replay\?/, bad("dlq", "reply", "x"))
    assert_match(/TOPIC is missing/, bad("dlq", "replay"))
    assert_match(/has no topic "x"/, bad("dlq", "replay", "x"))
  end
end
