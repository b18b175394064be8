# frozen_string_literal: true

require_relative "streams_case"

# Commands that change nothing: topics, groups, lag, tail.
class CLIStreamsLookingTest < CLIStreamsCase
  CONTROL = "a\e[31mb"

  def test_which_log
    good("topics")
    assert_equal "log://#{@root}/storage/streams", @opened.last["broker"]
    assert_match(%r{nobody answers at kafka://127.0.0.1:1$}, bad("topics", "--broker", "kafka://127.0.0.1:1"))
    FileUtils.rm("config/chaton.rb")
    FileUtils.touch("storage/chaton_development_log.db")
    @logs["sqlite://#{@root}/storage/chaton_development_log.db"] = @log
    good("topics")
    assert_equal "sqlite://#{@root}/storage/chaton_development_log.db", @opened.last["broker"]
  end

  def test_reading_makes_no_log
    FileUtils.rm_r("storage")
    [%w[topics], %w[groups], %w[lag], %w[tail events]].each do |command|
      status, out, err = chaton("streams", *command)
      assert_equal [1, ""], [status, out]
      assert_match(%r{\Achaton: there is no log at log://#{@root}/storage/streams yet; }, err)
    end
    refute_path_exists "storage"
    assert_equal 0, chaton("streams", "produce", "events", "x").first
    assert_match(/^events /, chaton("streams", "topics")[1])
  end

  def test_topics
    assert_equal "log://#{@root}/storage/streams has no topic\n", good("topics")
    @log.topic("orders", partitions: 2, records: [%w[a k], %w[b k]], start: 10, settings: { "retention.ms" => "5" })
    @log.topic("audit")
    assert_match(/^audit +1 +1 +0\norders +2 +1 +2  retention.ms=5$/, good("topics"))
    assert_equal %w[audit orders], json("topics").map { |topic| topic["name"] }
    text = good("topics", "orders")
    assert_match(/\Aorders: replication 1, settings retention.ms=5\n/, text)
    assert_match(/^ +0 +10 +12 +2$/, text)
    assert_equal 2, json("topics", "orders")["partitions"].size
    assert_match(/has no topic "order"; did you mean orders\?/, bad("topics", "order"))
    assert_match(/`chaton streams topics` lists them/, bad("topics", "zzzzz"))
  end

  def test_groups
    assert_match(/has no consumer group$/, good("groups"))
    @log.groups << { "name" => "app", "state" => "Stable",
                     "members" => [{ "id" => "m1", "host" => "here", "partitions" => %w[events-0 events-1] }] }
    @log.commit("old", "events", [1])
    assert_match(/^app +Stable +m1 +here +events-0 events-1\nold +Empty/, good("groups"))
    assert_equal "Stable", json("groups", "app")["state"]
    assert_match(/has no group "ap"; did you mean app\?/, bad("groups", "ap"))
  end

  def test_lag
    assert_match(/\Ano group has committed anything/, good("lag"))
    configure('topic "events", "EventsConsumer", group: "app"')
    @log.topic("events", partitions: 2, records: [["a", nil, 0], ["b", nil, 0], ["c", nil, 1]], start: 5)
    assert_match(/^app +events +0 +- +7 +2$/, good("lag"))
    @log.commit("app", "events", [6])
    @log.commit("other", "events", [1, 6])
    rows = json("lag")
    # What retention took away counts for nobody.
    assert_equal [["app", 0, 6, 1], ["app", 1, nil, 1], ["other", 0, 1, 2], ["other", 1, 6, 0]],
                 rows["partitions"].map { |row| row.values_at("group", "partition", "committed", "lag") }
    assert_equal [{ "group" => "app", "lag" => 2 }, { "group" => "other", "lag" => 2 }], rows["groups"]
    assert_equal ["other"], json("lag", "--group", "other")["groups"].map { |row| row["group"] }
    assert_match(/^all +4$/, good("lag"))
    assert_match(/no group "othr"; did you mean other\?/, bad("lag", "--group", "othr"))
    assert_match(/has no topic "x"/, bad("lag", "x"))
  end

  def test_tail_shows_the_newest_by_time
    @log.topic("events", partitions: 2)
    @log.produce_many(Array.new(30) { |n| ["events", "v#{n}", "k", { "h" => "1" }, n % 2, 1_700_000_000_000 + n] }, 1)
    text = good("tail", "events")
    assert_equal (20..29).map { |n| "v#{n}" }, text.lines.map { |line| line[/v\d+/] }
    assert_equal "events/0 @10  2023-11-14T22:13:20.020Z  k  v20  {h=1}", text.lines.first.chomp
    assert_equal %w[v27 v28 v29], good("tail", "events", "--count", "3").scan(/v\d+/)
    assert_equal %w[v0 v1], good("tail", "events", "--from", "earliest", "--count", "2").scan(/v\d+/)
    assert_equal %w[v28 v29], good("tail", "events", "--from", "-2").scan(/v\d+/)
    assert_equal %w[v29], good("tail", "events", "--from", "14", "--partition", "1").scan(/v\d+/)
    assert_equal %w[v28 v29], good("tail", "events", "--from", "2023-11-14T22:13:20.028Z").scan(/v\d+/)
    assert_equal "", good("tail", "events", "--from", "latest")
    assert_match(/has no partition 2; it has 0 to 1/, bad("tail", "events", "--partition", "2"))
    assert_match(/--from must be earliest, latest, .*not "newest"/, bad("tail", "events", "--from", "newest"))
  end

  def test_tail_is_fit_for_a_terminal_and_for_programs
    @log.topic("events", records: [[CONTROL, nil], ["\xFF\x00".b, "k"], [nil, "k", 0, { "a" => %w[1 2], "n" => nil }]])
    lines = good("tail", "events").lines
    refute_includes lines.join, "\e"
    assert_match(/  -  a\\e\[31mb$/, lines[0])
    assert_match(/  k  "\\xFF\\x00"$/, lines[1])
    assert_match(/  k  -  \{a=1, a=2, n=-\}$/, lines[2])
    first, second, third = good("tail", "events", "--json").lines.map { |line| JSON.parse(line) }
    assert_equal [CONTROL, nil, 0], first.values_at("value", "key", "offset")
    assert_equal({ "base64" => "/wA=" }, second["value"])
    assert_equal [nil, { "a" => %w[1 2], "n" => nil }], third.values_at("value", "headers")
  end

  def test_tail_follows
    @log.topic("events", partitions: 2, records: [["old", nil, 0]])
    seen = Thread.new { good("tail", "events", "--follow", "--count", "3") }
    @log.produce_many([["events", "n1", nil, nil, 0, nil], ["events", "n2", nil, nil, 1, nil]], 1)
    assert_equal %w[n1 n2 old], seen.value.scan(/n\d|old/).sort
  end

  def test_a_reader_that_fails_ends_it
    @log.topic("events", records: [["a"]])
    @log.define_singleton_method(:reader) { |*| raise Chaton::StreamCorrupt, "events-0/00000.log is damaged at 17" }
    assert_equal "chaton: events-0/00000.log is damaged at 17\n", bad("tail", "events")
    assert_match(/damaged/, bad("tail", "events", "--from", "latest", "--follow"))
  end

  def test_mistakes
    assert_match(/no command "topcs"; did you mean topics\?/, bad("topcs"))
    assert_match(/no command "list"; there are topics, groups, lag, /, bad("list"))
    assert_match(/TOPIC is missing: chaton streams tail TOPIC/, bad("tail"))
    assert_match(/one argument too many: b/, bad("groups", "a", "b"))
    assert_match(/--flow is not an option; did you mean --follow\?/, bad("tail", "events", "--flow"))
    assert_match(/--count must be a whole number/, bad("tail", "events", "--count", "0").tap { @log.topic("events") })
  end

  def test_help
    text = good("--help")
    assert_equal text, good
    Chaton::CLI::Streams::ALL.each_key do |name|
      assert_match(/^  #{name}\b/, text)
      help = good(name, "--help")
      assert_match(/\Achaton streams #{name}: .*\n\nUsage: chaton streams #{name}/m, help)
      assert_includes help, "--json"
      assert_includes help, "--broker URL"
    end
    assert_match(/^  streams +show and manage streams/, chaton("--help")[1])
  end
end
