# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# Exactly once: a consumer's written records and its offsets are committed in one transaction.
class StreamsTransactionTest < Minitest::Test
  include StreamsTest

  CONSUMER = <<~RUBY
    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        Evidence.note("began", topic, partition, batch.first_offset)
        batch.each_slice(20) do |some|
          transaction do |tx|
            some.each { |record| tx.produce("OUT", record.raw, key: record.key) }
            sleep 0.005
            tx.mark(some.last)
          end
        end
      end
    end
  RUBY
  KEYS = 16
  EACH = Soak.number(100, 200)
  KILLS = Soak.number(2, 4)
  # The broker aborts a dead process's transaction after this timeout; until then consumers wait behind it.
  SESSION = "session_timeout 1.5\nmax_poll_interval 6\ndelivery_timeout 3"
  ABORTS_SOON = { "transaction.abort.timed.out.transaction.cleanup.interval.ms" => 500 }.freeze

  def kind = :kafka

  def time_limit_s = 120

  def test_each_input_is_written_once_despite_kills
    @kafka = KafkaBroker.new(settings: ABORTS_SOON).start
    (@stores ||= []) << @kafka
    wanted = fill
    server = boot(workers: "streams: 2")
    KILLS.times do |round|
      server.eventually("progress", timeout_s: 60) { written >= wanted.size * (round + 1) / (KILLS + 2) }
      server.signal("KILL", server.eventually("a worker") { server.workers.sample })
    end
    assert_exactly_once(server, wanted)
    assert_equal 0, server.stop
  end

  # An exception in the block aborts the transaction: its records and its marks.
  def test_a_failed_transaction_writes_nothing
    create(partitions: 1)
    create("out", partitions: 1)
    log.write(topic, [%w[a], %w[b]])
    server = boot(<<~RUBY)
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each do |record|
            transaction do |tx|
              tx.produce("OUT", "\#{record.raw}\#{attempt}")
              tx.mark(record)
              raise "not yet" if record.raw == "b" && attempt < 3
            end
          end
        end
      end
    RUBY
    assert_all_committed(server)
    assert_equal %w[a1 b3], log.read(topic("out")).map { |record| record[:value] }
    assert_equal 0, server.stop
  end

  # The topic of the copies ends with the marker of a transaction.
  def test_the_lag_behind_a_transaction_becomes_zero
    create(partitions: 1)
    create("out", partitions: 1)
    log.write(topic, [%w[a], %w[b]])
    copies = <<~RUBY
      class CopiesConsumer < Chaton::Consumer
        def consume(batch) = batch.each { |record| Evidence.did(record) }
      end
    RUBY
    topics = [SESSION, route(transactional: true), route("out", consumer: "CopiesConsumer", group: topic("copies"))]
    server = boot_streams(CONSUMER.sub("OUT", topic("out")) + copies, topics: topics, config: StreamsServer::QUICK)
    # Two records and a marker.
    server.eventually("all is committed") { log.committed(topic("copies"))[[topic("out"), 0]] == 3 }
    assert log.done?(topic("copies"), topic("out"))
    assert_equal 0, server.stop
  end

  private

  def fill
    create(partitions: 4)
    create("out", partitions: 2)
    log.write_sequences(topic, keys: KEYS, each: EACH)
  end

  def boot(consumer = CONSUMER, workers: "streams: 1")
    topics = [SESSION, route(batch: 100, transactional: true, backoff: 0.05, backoff_max: 0.5)]
    boot_streams(consumer.sub("OUT", topic("out")), workers: workers, config: StreamsServer::QUICK, topics: topics)
  end

  def written = log.size(topic("out"))

  def assert_exactly_once(server, wanted)
    assert_all_committed(server, timeout_s: 60)
    records = output = nil
    # Records after an open transaction cannot be read yet.
    server.eventually("all of it can be read", timeout_s: 30) do
      records = log.read(topic("out"))
      output = records.map { |record| "#{record[:key]}=#{record[:value]}" }
      (wanted - output).empty?
    end
    assert_empty(output.tally.select { |_, count| count > 1 }.first(5), "written twice")
    assert_equal wanted.sort, output.sort
    records.group_by { |record| record[:key] }.each_value do |found|
      numbers = found.map { |record| record[:value].to_i }
      assert_equal numbers.sort, numbers
    end
  end
end
