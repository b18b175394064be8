# frozen_string_literal: true

require_relative "streams_case"
require "chaton/cli/streams/partition_copy"

# chaton streams copy …
class CLIStreamsCopyTest < CLIStreamsCase
  KAFKA = "kafka://127.0.0.1:9092"

  def setup
    super
    @kafka = @logs[KAFKA] = FakeLog.new(KAFKA)
    @log.topic("events", partitions: 2, start: 3,
                         records: [["a", "k", 0, { "h" => "1" }], ["b", nil, 0], [nil, "k", 1], ["\xFF".b, "k", 0]])
  end

  def copy(*more) = good("copy", "events", "--to", KAFKA, *more)

  def all(log, topic = "events")
    log.topics[topic]["partitions"].map do |records|
      records.map { |record| [record.key, record.raw, record.headers, record.timestamp_ms] }
    end
  end

  def test_everything_but_the_offsets_is_the_same
    assert_equal "4 records of events were copied to events at #{KAFKA}\n", copy
    assert_equal all(@log), all(@kafka)
    assert_equal [0, 1, 2], @kafka.records("events").map(&:offset)
    found = json("copy", "events", "--to", KAFKA, "--as", "other")
    assert_equal [4, [3, 1]], [found["records"], found["partitions"].map { |one| one["records"] }]
    assert_equal all(@log), all(@kafka, "other")
  end

  def test_resume_continues_after_the_copied_records
    copy
    @log.produce_many([["events", "c", nil, nil, 0, nil]], 1)
    assert_match(/has records already; --resume continues/, bad("copy", "events", "--to", KAFKA))
    assert_match(/\A1 records of events/, copy("--resume"))
    assert_match(/\A0 records of events/, copy("--resume"))
    assert_equal all(@log), all(@kafka)
  end

  # Its last note is older than what it has written by then.
  def test_one_that_was_killed_copies_nothing_twice
    @kafka.define_singleton_method(:produce_many) do |rows, timeout_s|
      super(rows, timeout_s).tap { raise SignalException, "KILL" }
    end
    assert_raises(SignalException) { streams("copy", "events", "--to", KAFKA) }
    assert_equal %w[a b], @kafka.values("events").first(2)
    @kafka.singleton_class.remove_method(:produce_many)
    copy("--resume")
    assert_equal all(@log), all(@kafka)
  end

  def test_an_interrupt_prints_the_position
    @kafka.define_singleton_method(:produce_many) { |*| raise Interrupt }
    status, out, err = streams("copy", "events", "--to", KAFKA)
    assert_equal [130, ""], [status, out]
    assert_equal "chaton: the copy has come to events/0 @3, events/1 @3; --resume continues it\n", err
  end

  # b is missing where c was written: what is there cannot be counted.
  def test_after_a_failure_records_come_twice_rather_than_never
    @kafka.refuse = ->(row) { ["StreamUnavailable", "#{KAFKA} is away"] if row[1] == "b" }
    assert_match(%r{\Achaton: #{KAFKA} is away; the copy has come to events/0 .*--resume continues it$}o,
                 bad("copy", "events", "--to", KAFKA))
    @kafka.refuse = nil
    copy("--resume")
    assert_equal ["a", "\xFF".b, "a", "b", "\xFF".b], @kafka.values("events")
    assert_match(/\A0 records/, copy("--resume"))
  end

  def test_groups_go_on_where_they_are
    @log.commit("app", "events", [4, 4])
    @log.commit("behind", "events", [0, nil])
    text = copy("--groups")
    assert_match(/^group app continues at 0 @1, 1 @1$/, text)
    assert_match(/^group behind continues at 0 @0$/, text)
    assert_equal({ ["events", 0] => [1, ""], ["events", 1] => [1, ""] }, @kafka.commits["app"])
    refute(@kafka.commits.keys.any? { |name| name.start_with?("chaton-") })
  end

  def test_from_another_log_records_are_counted
    copy
    # An offset without a record, as the end of a transaction is one.
    @kafka.records("events").delete_at(1)
    @kafka.commit("app", "events", [0, 1])
    back = "log:///back"
    @logs[back] = FakeLog.new(back)
    text = good("copy", "events", "--from", KAFKA, "--to", back, "--groups")
    assert_match(/^group app continues at 0 @0, 1 @1$/, text)
    assert_equal ["a", "\xFF".b], @logs[back].values("events")
  end

  def test_settings_of_kafka_are_not_for_a_directory
    configure('username "u"; password "p"; kafka "client.rack" => "a"')
    copy
    assert_equal [nil, "u"], @opened.last(2).map { |settings| settings["username"] }
  end

  def test_invalid_copies_are_refused
    assert_match(/--to is missing: chaton streams copy TOPIC --to URL/, bad("copy", "events"))
    assert_match(/has no topic "evnts"; did you mean events\?/, bad("copy", "evnts", "--to", KAFKA))
    assert_match(/no copy of events to events at .* was begun/, bad("copy", "events", "--to", KAFKA, "--resume"))
    assert_match(/cannot be copied onto itself/, bad("copy", "events", "--to", "log://storage/streams"))
    @kafka.topic("events", partitions: 3)
    assert_match(/has 3 partitions and events 2/, bad("copy", "events", "--to", KAFKA))
    assert_match(%r{--to must be sqlite://PATH.*write kafka://host:9}, bad("copy", "events", "--to", "host:9"))
  end

  def test_a_target_that_another_program_changes_is_refused
    copy
    @kafka.produce_many([["events", "x", nil, nil, 0, nil]], 1)
    assert_match(/has 1 records more than were copied to it/, bad("copy", "events", "--to", KAFKA, "--resume"))
    @kafka.topic("events", partitions: 2)
    assert_match(/has fewer records than were copied to it/, bad("copy", "events", "--to", KAFKA, "--resume"))
  end
end
