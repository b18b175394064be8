# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# `chaton streams …`, without a server and beside one.
class StreamsCommandTest < Minitest::Test
  include StreamsTest

  def time_limit_s = 90

  each_log def test_topics_are_made_as_declared
    server = prepare_streams(topics: [route(partitions: 3, settings: { "retention.ms" => 3_600_000 }),
                                      "topic #{topic("audit").dump}, partitions: 2"])
    _, _, status = server.streams_command("plan")
    assert_equal 2, status
    assert_equal [%w[create audit], %w[create events]],
                 json(server, "plan", status: 2).map { |one| [one["act"], one["topic"][/\A\w+/]] }.sort
    success(server, "apply")
    assert_equal [], json(server, "plan")
    assert_equal 3, log.partitions(topic).size
    assert_equal "3600000", log.admin(do: "topic", name: topic)["settings"]["retention.ms"]
    server.write("config/chaton.rb", server.read("config/chaton.rb").sub("partitions: 3", "partitions: 5"))
    success(server, "apply")
    assert_equal 5, log.partitions(topic).size
    success(server, "plan")
  end

  each_log def test_records_are_written_and_shown
    create(partitions: 2)
    server = prepare_streams
    written = json(server, "produce", topic, "hello", "--key", "k", "--header", "trace=7", "--partition", "1")
    assert_equal [topic, 1, 1, 0], written.values_at("topic", "records", "partition", "offset")
    out, err, status = server.streams_command("produce", topic, "-", "--partition", "0", input: "one\ntwo\n")
    assert_equal 0, status, out + err
    shown = success(server, "tail", topic, "--json").lines.map { |line| JSON.parse(line) }
    assert_equal %w[hello one two], shown.map { |record| record["value"] }
    assert_equal [1, 0, "k", { "trace" => "7" }], shown.first.values_at("partition", "offset", "key", "headers")
    assert_match(/one/, success(server, "tail", topic, "--partition", "0", "--from", "0", "--count", "1"))
    assert_includes(json(server, "topics").map { |one| one["name"] }, topic)
    assert_match(/^partition +start +end +records/, success(server, "topics", topic))
  end

  each_log def test_lag_and_groups_beside_a_server
    create(partitions: 2)
    server = boot_streams
    log.write(topic, Array.new(20) { |n| [n.to_s, nil, nil, n % 2] })
    assert_all_committed(server)
    groups = json(server, "groups", group)
    reading = groups["members"].flat_map { |member| member["partitions"] }
    assert_equal ["#{topic}-0", "#{topic}-1"], reading.sort
    assert_equal 0, server.stop
    log.write(topic, Array.new(6) { |n| [n.to_s, nil, nil, 0] })
    lag = json(server, "lag", topic, "--group", group)
    assert_equal [[0, 10, 16, 6], [1, 10, 10, 0]],
                 lag["partitions"].map { |one| one.values_at("partition", "committed", "end", "lag") }.sort
    assert_equal [{ "group" => group, "lag" => 6 }], lag["groups"]
  end

  # From one log to the other, groups and all.
  def test_a_topic_moves_from_the_local_log_to_kafka
    @kind = :local
    create(partitions: 2)
    log.write(topic, Array.new(3_000) { |n| [n.zero? ? nil : n.to_s, "k#{n % 7}", { "n" => n.to_s }, n % 2] })
    server = boot_streams
    assert_all_committed(server)
    assert_equal 0, server.stop
    log.write(topic, [["last", nil, nil, 0]])
    copied = json(server, "copy", topic, "--to", kafka.url, "--groups")
    assert_equal 3_001, copied["records"]
    there = StreamsLog.new(kafka.url)
    fields = %i[partition key value headers timestamp_ms]
    assert_equal log.read(topic).map { |record| record.slice(*fields) },
                 there.read(topic).map { |record| record.slice(*fields) }
    assert_equal [1_500, 1_500], there.committed(group).sort.map(&:last)
  ensure
    there&.close
  end

  def test_what_is_not_there_is_named
    @kind = :local
    server = prepare_streams
    _, err, status = server.streams_command("tail", "evnts")
    assert_equal 1, status
    assert_match(/evnts/, err)
    _, err, status = server.streams_command("lga")
    assert_equal 1, status
    assert_match(/did you mean lag/, err)
  end

  private

  def success(server, *words, status: 0)
    out, err, got = server.streams_command(*words)
    assert_equal status, got, "#{words.join(" ")}: #{out}#{err}"
    out
  end

  def json(server, *words, status: 0) = JSON.parse(success(server, *words, "--json", status: status))
end
