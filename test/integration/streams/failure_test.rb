# frozen_string_literal: true

require "test_helper"
require "time"
require "support/streams_test_case"

# Failing consumers: records are retried, moved to the dead-letter topic and replayed, while other partitions continue.
class StreamsFailureTest < Minitest::Test
  include StreamsTest

  POISON = (0..255).map(&:chr).join.b.freeze
  HEADERS = { "trace" => "7", "empty" => nil, "twice" => %w[a b] }.freeze
  # Names of the headers with the origin of a dead letter.
  CAUSES = %w[source_topic source_partition source_offset source_consumer_group source_attempts error_class
              error_message failed_at].freeze
  # Fails on the poison record until the file `mended` exists.
  CONSUMER = <<~RUBY
    class PoisonError < StandardError; end
    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        batch.each do |record|
          poison = record.raw&.bytesize == 256
          Evidence.note(poison ? "tried" : "did", topic, partition, record.offset, record.key || "-", attempt)
          raise PoisonError, "cannot digest this" if poison && !File.exist?("mended")
          mark(record)
        end
      end
    end
  RUBY
  AGAIN = { retries: 2, backoff: 0.05, backoff_max: 0.1 }.freeze

  each_log def test_a_poison_record_becomes_a_dead_letter_and_is_replayed
    create("dead", partitions: 1)
    server = poisoned(dead_letter: topic("dead"), **AGAIN)
    server.eventually("it is a dead letter") { log.size(topic("dead")) == 1 }
    server.eventually("all others were done") { evidence.count == 39 }
    assert_all_committed(server)
    assert_equal 39, evidence.all.map { |entry| [entry.partition, entry.offset] }.uniq.size
    dead = log.read(topic("dead")).first
    assert_equal [POISON, "key".b], [dead[:value], dead[:key].b]
    assert_equal HEADERS, dead[:headers].except(*CAUSES)
    assert_causes(dead[:headers], attempts: evidence.count("tried"))
    assert_replayed(server)
    assert_equal 0, server.stop
  end

  # Without marks a batch is retried from its start, until the failing record is isolated.
  each_log def test_the_failing_record_is_isolated
    create("dead", partitions: 1)
    server = poisoned(CONSUMER.sub("mark(record)", ""), dead_letter: topic("dead"), **AGAIN)
    server.eventually("it is a dead letter") { log.size(topic("dead")) == 1 }
    assert_all_committed(server)
    assert_equal [5], log.read(topic("dead")).map { |record| record[:headers]["source_offset"].to_i }
    server.eventually("all others were done") { evidence.all.map(&:offset).size >= 39 }
    assert_equal [*0..4, *6..19], evidence.all.select { |entry| entry.partition.zero? }.map(&:offset).uniq.sort
    assert_equal 0, server.stop
  end

  # With the headers they are larger than a topic takes (1,048,588 bytes): the first with all of its message, the second
  # with any.
  each_log def test_a_record_that_fills_a_message_becomes_a_dead_letter
    create(partitions: 1)
    create("dead", partitions: 1)
    log.write(topic, [1_047_000, 1_048_300, 5].map { |bytes| ["v" * bytes] })
    server = boot_streams(<<~RUBY, topics: route(dead_letter: topic("dead"), batch: 1, **AGAIN, retries: 0))
      class EventsConsumer < Chaton::Consumer
        def consume(batch) = batch.each { |record| raise "x" * 3_000 if record.raw.bytesize > 5 }
      end
    RUBY
    assert_all_committed(server)
    dead = log.read(topic("dead"))
    assert_equal([1_047_000, nil], dead.map { |record| record[:value]&.bytesize })
    assert_equal([nil, "1048300"], dead.map { |record| record[:headers]["source_value_bytes"] })
    assert_equal([200, 200], dead.map { |record| record[:headers]["error_message"].size })
    assert_match(/WARN .*a dead letter to #{topic("dead")}: .*; it is written with less of its record/, server.log)
    assert_equal 0, server.stop
  end

  # Without a dead-letter topic the partition retries for ever, and the other partitions continue.
  each_log def test_without_a_dead_letter_topic_only_that_partition_waits
    server = poisoned(**AGAIN.except(:retries))
    server.eventually("it was tried often") { evidence.count("tried") >= 5 }
    server.eventually("the others are done") { done_in(1) == 20 && done_in(0) == 5 }
    server.eventually("committed up to it") { log.committed(group)[[topic, 0]] == 5 }
    attempts = evidence.all("tried").map { |entry| entry.value.to_i }
    assert_equal (1..attempts.size).to_a, attempts
    assert_match(/PoisonError.*cannot digest this/, server.log)
    server.write("mended", "")
    server.eventually("it goes on") { done_in(0) == 19 }
    assert_all_committed(server)
    assert_equal 0, server.stop
  end

  # No exception of a consumer ends its worker, and no way of leaving `consume` loses a record.
  each_log def test_no_way_of_leaving_consume_loses_a_record
    create(partitions: 1)
    ways = ["exit", "abort", "throw :nowhere", "Thread.current.kill", "raise Exception, 'above all'", "raise Interrupt",
            "deeper(0)"]
    log.write(topic, Array.new(ways.size) { |n| [n.to_s] })
    server = boot_streams(<<~RUBY, topics: route(batch: 1, backoff: 0.05, backoff_max: 0.05))
      class EventsConsumer < Chaton::Consumer
        WAYS = [#{ways.map { |way| "-> { #{way} }" }.join(", ")}]
        def consume(batch)
          record = batch.first
          Evidence.did(record, "tried")
          instance_exec(&WAYS.fetch(record.raw.to_i)) unless File.exist?("left-\#{record.raw}").tap { File.write("left-\#{record.raw}", "") }
          Evidence.did(record)
        end
        def deeper(level) = deeper(level + 1)
      end
    RUBY
    pids = server.workers
    server.eventually("all were done") { evidence.count == ways.size }
    assert_all_committed(server)
    assert_equal pids, server.workers
    assert_equal ways.size * 2, evidence.count("tried")
    assert_equal 0, server.stop
  end

  # A deserialiser fails when the value is read, and for this record only.
  each_log def test_a_value_that_is_not_json_fails_alone
    create(partitions: 1)
    create("dead", partitions: 1)
    log.write(topic, [["{\"n\":1}"], ["{broken"], ["{\"n\":3}"]])
    server = boot_streams(<<~RUBY, topics: route(deserializer: :json, dead_letter: topic("dead"), **AGAIN))
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each do |record|
            Evidence.note("did", topic, partition, record.offset, "-", record.value.fetch("n"))
            mark(record)
          end
        end
      end
    RUBY
    assert_all_committed(server)
    assert_equal %w[1 3], evidence.values
    dead = log.read(topic("dead"))
    assert_equal ["{broken"], dead.map { |record| record[:value] }
    assert_equal "Chaton::DeserializationError", dead.first[:headers]["error_class"]
    assert_equal 0, server.stop
  end

  private

  def poisoned(consumer = CONSUMER, **options)
    create(partitions: 2)
    list = Array.new(40) { |n| ["v#{n}", "k#{n}", {}, n % 2] }
    list[10] = [POISON, "key", HEADERS, 0]
    log.write(topic, list)
    boot_streams(consumer, topics: route(batch: 10, **options))
  end

  def done_in(partition) = evidence.all.count { |entry| entry.partition == partition }

  def assert_causes(headers, attempts:)
    cause = headers.slice(*CAUSES)
    assert_equal [topic, "0", "5", group, "PoisonError", "cannot digest this"],
                 cause.values_at("source_topic", "source_partition", "source_offset", "source_consumer_group",
                                 "error_class", "error_message")
    assert_equal attempts, cause["source_attempts"].to_i
    assert_in_delta Time.now.to_f, Time.iso8601(cause["failed_at"]).to_f, 60
  end

  # Replays the dead letters to their topic once the cause is removed.
  def assert_replayed(server)
    server.write("mended", "")
    out, err, status = server.streams_command("dlq", "replay", topic("dead"), "--json")
    assert_equal 0, status, "#{out}#{err}"
    server.eventually("it was done") { log.size(topic) == 41 && evidence.count("tried") >= AGAIN[:retries] + 2 }
    again = log.read(topic).max_by { |record| [record[:timestamp_ms], record[:offset]] }
    assert_equal [POISON, "key".b, HEADERS], [again[:value], again[:key].b, again[:headers].except(*CAUSES)]
    assert_all_committed(server)
  end
end
