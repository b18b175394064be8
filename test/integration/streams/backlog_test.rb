# frozen_string_literal: true

require "test_helper"
require "support/process_figures"
require "support/streams_test_case"

# The settings bound the read-ahead of a consumer that is far behind, however long its lag is.
class StreamsBacklogTest < Minitest::Test
  include StreamsTest

  RECORDS = 150_000
  BYTES = 1_000
  PARTITIONS = 4
  # The read-ahead of each partition; the lag is many times longer.
  AHEAD = "constants_for_tests buffer_bytes: 1 << 20"
  # Ruby's garbage between two collections, and the client's own structures.
  MARGIN_KIB = 80 << 10
  # An idle worker.
  EMPTY_KIB = 45 << 10
  FLAT = 1.15

  each_log def test_a_slow_consumer_far_behind_has_bounded_memory
    create(partitions: PARTITIONS)
    log.write(topic, Array.new(RECORDS) { |n| ["x" * BYTES, "k#{n % 64}"] })
    server = prepare_streams(<<~RUBY, topics: [AHEAD, route(batch: 100, batch_bytes: 100_000)])
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each { |record| record.value }
          Evidence.note("did", topic, partition, batch.last_offset)
          sleep 0.02
        end
      end
    RUBY
    server.start.ready
    server.eventually("it works") { evidence.count.positive? }
    pid = server.workers.first
    peaks_kib = [700, 1_000, 1_300].map { |count| peak_kib(server, pid, count) }
    # The first batches grow eden and the heap to their sizes. Keeping all consumed records would double it.
    assert_operator peaks_kib.max, :<, EMPTY_KIB + MARGIN_KIB
    assert_operator peaks_kib.last, :<, peaks_kib.first * FLAT, peaks_kib.inspect
    assert_equal 0, server.stop
  end

  # The producer's buffer is bounded, too: a call waits for room, and raises after its timeout.
  def test_a_producer_without_a_broker_waits_and_raises
    @broker = "kafka://127.0.0.1:1"
    server = prepare_streams(topics: ["produce_buffer \"1M\"\nconstants_for_tests produce_timeout_s: 0.5", route])
    plain = console(server)
    count, kind, message = plain.run(<<~RUBY)
      sent = 0
      begin
        loop { Chaton.produce(#{topic.dump}, "x" * 10_000) && sent += 1 }
      rescue Chaton::StreamError => e
        [sent, e.class.name, e.message]
      end
    RUBY
    assert_equal "Chaton::BufferFull", kind
    assert_operator count, :<=, 120
    assert_match(/produce_buffer/, message)
  end

  private

  # Waits until this many batches are done.
  #
  # @return [Integer] peak of the resident memory meanwhile
  def peak_kib(server, pid, count)
    peak = 0
    server.eventually("#{count} batches") do
      peak = [peak, ProcessFigures.resident_kib(pid)].max
      evidence.count >= count
    end
    peak
  end
end
