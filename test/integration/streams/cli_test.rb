# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# The commands of `chaton streams`: the real executable on a real log, with and without a running server.
class StreamsTypedCommandTest < Minitest::Test
  include StreamsTest

  each_log def test_topics_are_created_and_compared
    server = prepare_streams(topics: [route(partitions: 3, settings: { "retention.ms" => 3_600_000 },
                                            dead_letter: topic("dead")), "topic #{topic("audit").dump}, partitions: 2"])
    out, _, status = server.streams_command("plan")
    assert_equal 2, status
    assert_match(/^create #{topic}: 3 partitions, retention.ms=3600000$/, out)
    success(server, "apply")
    assert_match(/3 topics of .* are as declared/, success(server, "plan"))
    state = json(server, "topics", topic)
    assert_equal [3, "3600000"], [state["partitions"].size, state["settings"]["retention.ms"]]
    assert_equal 2, json(server, "topics", topic("audit"))["partitions"].size
    log.admin(do: "configure", name: topic, settings: { "retention.ms" => "1000000" })
    assert_equal ["configure"], json(server, "apply").map { |change| change["act"] }
    assert_equal "3600000", json(server, "topics", topic)["settings"]["retention.ms"]
  end

  each_log def test_records_are_written_and_shown
    server = prepare_streams
    create(partitions: 2)
    written = json(server, "produce", topic, "one", "--key", "k", "--header", "a=1", "--partition", "1")
    assert_equal [1, 1, 0], written.values_at("records", "partition", "offset")
    lines = Array.new(1_500) { |number| "line #{number}" }
    out, err, status = server.streams_command("produce", topic, "-", "--partition", "0", input: lines.join("\n"))
    assert_equal [["", 0], 1_500], [[err, status], out[/\A[\d,]+/].delete(",").to_i]
    assert_match(%r{^#{topic}/1 @0  \S+Z  k  one  \{a=1\}$}, success(server, "tail", topic, "--partition", "1"))
    shown = success(server, "tail", topic, "--json", "--partition", "0", "--from", "earliest").lines
    assert_equal lines, shown.map { |line| JSON.parse(line)["value"] }
    assert_equal lines.last(3), success(server, "tail", topic, "--from", "-3").scan(/line \d+/)
    from700 = success(server, "tail", topic, "--partition", "0", "--from", "700", "--count", "1")
    assert_equal ["line 700"], from700.scan(/line \d+/)
    success(server, "produce", topic, "--key", "k", "--tombstone", "--partition", "1")
    assert_nil JSON.parse(success(server, "tail", topic, "--json", "--partition", "1").lines.last)["value"]
  end

  each_log def test_tail_follows_new_records
    server = prepare_streams
    create(partitions: 2)
    log.write(topic, [["before", nil, nil, 0]])
    tail = Follower.new(server, topic)
    tail.wait_for(/before/)
    log.write(topic, [["after", nil, nil, 1], ["later", nil, nil, 0]])
    tail.wait_for(/after/)
    tail.wait_for(/later/)
    assert_equal 0, tail.interrupt
  ensure
    tail&.close
  end

  each_log def test_groups_and_lag_are_shown
    create(partitions: 2)
    server = boot_streams
    log.write(topic, Array.new(10) { |number| [number.to_s, "k#{number}"] })
    assert_all_committed(server)
    rows = json(server, "lag", topic, "--group", group)
    assert_equal [{ "group" => group, "lag" => 0 }], rows["groups"]
    assert_equal 10, rows["partitions"].sum { |row| row["end"] }
    found = json(server, "groups", group)
    assert_equal ["#{topic}-0", "#{topic}-1"], found["members"].flat_map { |member| member["partitions"] }.sort
    assert_equal 0, server.stop
    log.write(topic, Array.new(5) { ["more"] })
    assert_equal 5, json(server, "lag", topic, "--group", group)["groups"].first["lag"]
  end

  each_log def test_a_group_is_set_to_other_offsets
    create(partitions: 1)
    server = boot_streams
    log.write(topic, Array.new(10) { |number| [number.to_s] })
    assert_all_committed(server)
    out, err, status = server.streams_command("seek", group, topic, "--to", "4")
    assert_equal ["", 1], [out, status]
    assert_match(/stop them/, err)
    assert_equal 0, server.stop
    assert_equal({ "0" => 4 }, json(server, "seek", group, topic, "--to", "4")["offsets"])
    assert_equal 6, json(server, "lag", topic, "--group", group)["groups"].first["lag"]
    { "earliest" => 0, "latest" => 10, "-3" => 7, "99" => 10, "2020-01-31T12:00:00Z" => 0 }.each do |to, offset|
      assert_match(%r{continues in #{topic}/0 at #{offset}$}, success(server, "seek", group, topic, "--to", to), to)
    end
    _, err, status = server.streams_command("seek", "#{group}x", topic, "--to", "4")
    assert_equal 1, status
    assert_match(/no group.*did you mean #{group}/, err)
  end

  each_log def test_dead_letters_are_replayed
    failing = <<~RUBY
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each do |record|
            raise IOError, "poison" if record.raw == "bad" && !File.exist?("mended")
            Evidence.did(record)
          end
        end
      end
    RUBY
    server = boot_streams(failing, topics: route(dead_letter: topic("dead"), retries: 1, backoff: 0.01)) do
      create(partitions: 1)
      create("dead", partitions: 1)
    end
    log.write(topic, [["bad", "k", { "trace" => "t" }, nil], ["good", "k"]])
    server.eventually("it is a dead letter") { log.read(topic("dead")).size == 1 }
    assert_equal [{ "topic" => topic("dead"), "waiting" => 1 }], json(server, "dlq", "list")
    assert_match(/#{topic}.0 @0 .*IOError: poison$/, success(server, "dlq", "list", topic("dead")))
    server.write("mended", "")
    assert_equal({ topic => 1 }, json(server, "dlq", "replay", topic("dead"))["to"])
    server.eventually("it is done") { log.done?(group, topic) && log.read(topic).size == 3 }
    again = log.read(topic).last
    assert_equal ["bad", "k", { "trace" => "t" }], again.values_at(:value, :key, :headers)
    assert_match(/nothing waits/, success(server, "dlq", "replay", topic("dead")))
    assert_equal 0, server.stop
  end

  each_log def test_a_topic_is_copied_to_another_log
    server = prepare_streams
    create(partitions: 3)
    log.write_sequences(topic, keys: 9, each: 200)
    log.write(topic, [[nil, "gone", { "h" => "1" }, 2, 1_700_000_000_000]])
    other = StreamsLog.new("log://#{scratch}/other")
    copy = ["copy", topic, "--to", "log://#{scratch}/other"]
    assert_match(/\A1,801 records of #{topic} were copied/, success(server, *copy))
    log.write_sequences(topic, keys: 9, each: 10)
    log.admin(do: "set_committed", group: group, commits: [{ topic: topic, partition: 2, offset: 7 }])
    _, err, status = server.streams_command(*copy)
    assert_equal 1, status
    assert_match(/has records already/, err)
    assert_match(/\A90 records/, success(server, *copy, "--resume", "--groups"))
    strip = ->(record) { record.except(:offset) }
    assert_equal log.read(topic).map(&strip), other.read(topic).map(&strip)
    assert_equal({ [topic, 2] => 7 }, other.committed(group))
  ensure
    other&.close
  end

  each_log def test_errors_name_the_mistake
    server = prepare_streams
    create
    { %w[tial x] => /no command "tial".*tail/, %w[tail] => /TOPIC is missing/,
      %w[tail nothing] => /has no topic "nothing"/, %w[produce nothing-x x --partition 900] => /nothing-x/,
      %w[lag --group nobody] => /has no group "nobody"/,
      %w[topics --jsno] => /--jsno.*--json/, %w[copy x] => /--to is missing/ }.each do |words, message|
      out, err, status = server.streams_command(*words)
      assert_equal ["", 1], [out, status], words.inspect
      assert_match(message, err, words.inspect)
      refute_match(/\.rb:\d+/, err)
    end
  end

  # `tail --follow` in a process of its own.
  class Follower
    def initialize(server, topic)
      out, input = IO.pipe
      @pid = Process.spawn(RbConfig.ruby, "-I", Server::LIB, Server::EXE, "streams", "tail", topic, "--follow",
                           chdir: server.dir, out: input, err: input)
      input.close
      @output = Output.new(out)
      @waiter = Process.detach(@pid)
    end

    def wait_for(pattern) = @output.wait_line(pattern, count: 1, timeout_s: StreamsTest::WAIT_S)

    # @return [Integer] exit status
    def interrupt
      Process.kill("INT", @pid)
      @waiter.join(StreamsTest::WAIT_S) or raise "tail has not ended"
      @waiter.value.exitstatus
    end

    def close
      Process.kill("KILL", @pid) if @waiter.alive?
    rescue Errno::ESRCH
      nil
    end
  end

  private

  def success(server, *words)
    out, err, status = server.streams_command(*words)
    # On a busy machine long work tells how far it is.
    assert_equal [[], 0], [err.lines.grep_v(/\A\w+: +\d+ %  /), status], words.inspect
    out
  end

  def json(server, *words) = JSON.parse(success(server, *words, "--json"))
end
