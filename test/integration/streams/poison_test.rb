# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# Records that end the workers that consume them are counted outside of these, run alone after the second time, and are
# dead letters after the third.
class StreamsPoisonTest < Minitest::Test
  include StreamsTest

  # `tried` is noted of the poison only.
  CONSUMER = <<~RUBY
    require "fiddle"
    HOG = Fiddle::Function.new(Fiddle::Handle::DEFAULT["sleep"], [Fiddle::TYPE_INT], Fiddle::TYPE_INT, need_gvl: true)
    KEPT = []
    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        batch.each do |record|
          if WAYS.key?(record.raw)
            Evidence.note("tried", topic, partition, record.offset, batch.size, attempt)
            WAYS.fetch(record.raw).call
          end
          Evidence.did(record)
        end
      end
      WAYS = { "crash" => -> { Process.kill(:KILL, Process.pid) && sleep }, "hang" => -> { HOG.call(600) },
               # It begins to grow when its worker has been measured.
               "grow" => -> { sleep(3) && loop { sleep(0.005) && KEPT << ("x" * 500_000) } },
               "wait" => -> { sleep } }.freeze
    end
    class OtherConsumer < EventsConsumer; end
  RUBY

  # Three kills.
  DEAD_S = 120
  # The offset of the poison.
  AT = 5

  def setup
    needs_gems("fiddle")
    @kind = :local
  end

  each_log def test_a_record_that_crashes_three_workers_is_a_dead_letter_and_another_topic_goes_on
    create("other", partitions: 2)
    server = poisoned("crash", dead_letter: "dead", more: [route("other", consumer: "OtherConsumer", batch: 1)])
    server.eventually("it is a dead letter", timeout_s: DEAD_S) do
      log.write(topic("other"), [["more"]])
      log.size(topic("dead")) == 1
    end
    assert_dead_letter(server, /3 times within 72 hours: (?:SIGKILL at 20\d\d-\d\d-\d\dT[\d:.]+Z(?:, )?){3}\z/)
    assert_all_committed(server, "other")
    assert_equal 3, server.log.scan("ERROR worker died").size
    assert_equal 0, server.stop
  end

  def test_a_record_that_hangs_three_workers_is_a_dead_letter
    server = poisoned("hang", dead_letter: "dead", config: "alive_timeout_s 4")
    server.eventually("it is a dead letter", timeout_s: DEAD_S) { log.size(topic("dead")) == 1 }
    assert_dead_letter(server, /3 times within 72 hours: (?:no sign of life \(alive_timeout 4(?:\.0)? s\) at .*){3}/)
    # It held the GVL from its first moment, and its worker was known as ready.
    refute_match(/boot_timeout/, server.log)
    assert_equal 0, server.stop
  end

  def test_a_record_that_takes_too_much_memory_three_times_is_a_dead_letter
    memory = "constants_for_tests check_every_s: 0.1\nmemory do\n  limit \"100M\"\n  limit_hard \"128M\"\nend\n" \
             "shutdown_timeout_s 60"
    server = poisoned("grow", dead_letter: "dead", config: memory)
    server.eventually("it is a dead letter", timeout_s: DEAD_S) { log.size(topic("dead")) == 1 }
    assert_dead_letter(server, /3 times within 72 hours: (?:memory: \d+ MiB \(hard ceiling 128 MiB\) at .*){3}/)
    assert_equal 0, server.stop
  end

  def test_without_a_dead_letter_topic_it_is_tried_again_alone_and_the_other_partition_goes_on
    server = poisoned("crash")
    server.wait_line(/@5: the worker died.*3 times.*tried again alone after a pause/, timeout_s: DEAD_S)
    log.write(topic, Array.new(5) { |n| ["late#{n}", "k", {}, 1] })
    server.eventually("the other partition goes on") { done_in(1).size == 25 }
    server.eventually("committed up to it") { log.committed(group)[[topic, 0]] == AT }
    server.wait_line(/@5: the worker died.*4 times/, timeout_s: DEAD_S)
    tried = evidence.all("tried").map { |entry| [entry.key, entry.value] }
    assert_equal [%w[10 1], %w[1 2], %w[1 3], %w[1 4]], tried.first(4)
    assert_equal (0...AT).to_a, done_in(0)
    assert_equal 0, server.stop
  end

  def test_stops_are_never_fatal
    server = poisoned("wait", dead_letter: "dead", config: "shutdown_timeout_s 0.1")
    5.times do |stop|
      server.eventually("it runs", timeout_s: 60) { evidence.count("tried") == stop + 1 }
      stop.even? ? server.signal("TERM", server.workers.first) : server.signal("USR1")
      server.wait_line(/interrupted batches are read again/, count: stop + 1, timeout_s: 60)
      server.wait_line(/phased restart done/, count: (stop + 1) / 2, timeout_s: 60)
    end
    server.eventually("it runs", timeout_s: 60) { evidence.count("tried") == 6 }
    # In a batch with others, as its first attempt.
    assert_equal [%w[10 1]], evidence.all("tried").map { |entry| [entry.key, entry.value] }.uniq
    assert_equal 0, server.stop
    assert_equal 0, log.size(topic("dead"))
  end

  private

  # A server with one worker, and a log with 20 records in each of two partitions, one of which is poison.
  def poisoned(way, dead_letter: nil, config: "", more: [])
    create(partitions: 2)
    create(dead_letter, partitions: 1) if dead_letter
    list = Array.new(40) { |n| ["v#{n}", "k#{n}", {}, n % 2] }
    list[2 * AT] = [way, "key", {}, 0]
    log.write(topic, list)
    options = { batch: 10, dead_letter: dead_letter && topic(dead_letter) }.compact
    # A broker keeps the partitions of a killed worker for this long.
    session = "session_timeout 6\nmax_poll_interval 10" if kafka?
    boot_streams(CONSUMER, topics: [*session, route(**options), *more], threads: "1..4",
                           config: "#{StreamsServer::QUICK}\n#{config}")
  end

  # The offsets of the records that were done, in the order of their first time.
  def done_in(partition)
    evidence.all(topic: topic).select { |entry| entry.partition == partition }.map(&:offset).uniq
  end

  def assert_dead_letter(server, story)
    assert_all_committed(server)
    headers = log.read(topic("dead")).first[:headers]
    names = %w[source_topic source_partition source_offset source_attempts error_class]
    assert_equal [topic, "0", AT.to_s, "3", "Chaton::Streams::Poison"], headers.values_at(*names)
    assert_match(story, headers["error_message"])
    # The second time by itself, and the attempts are counted over the workers.
    tried = evidence.all("tried").map { |entry| [entry.key, entry.value] }
    # A broker's first answer may have fewer records.
    tried[0][0] = "10" if kafka?
    assert_equal [%w[10 1], %w[1 2], %w[1 3]], tried
    server.eventually("all others were done") { done_in(0).size == 19 && done_in(1).size == 20 }
    assert_equal [[*0...20] - [AT], [*0...20]], [done_in(0), done_in(1)]
    server.wait_line(/is written to #{topic("dead")}/)
  end
end
