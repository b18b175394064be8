# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# Handlers that take longer than a group's limits, scaled down: Kafka evicts a member that has not polled for 6 s
# (usually 5 minutes) or has sent no heartbeat for 4 s (usually 45 s); the local log has 3 s and 1 s.
class StreamsLongHandlerTest < Minitest::Test
  include StreamsTest

  SESSIONS = { kafka: "session_timeout 4\nmax_poll_interval 6",
               local: "session_timeout 1\nmax_poll_interval 3" }.freeze
  # Much longer than both, so that another server has time to boot.
  LONG_S = { kafka: 12, local: 9 }.freeze
  CONSUMER = <<~RUBY
    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        batch.each do |record|
          Evidence.did(record, "in")
          sleep record.raw.to_f
          Evidence.did(record, revoked? ? "late" : "did")
        end
      end
      def revoked = Evidence.note("revoked", topic, partition)
    end
  RUBY

  def time_limit_s = 90
  def session = SESSIONS.fetch(kind)
  def long_s = LONG_S.fetch(kind)

  each_log def test_a_member_with_a_long_handler_is_not_evicted
    create(partitions: 2)
    server = boot_streams(CONSUMER, topics: [session, route])
    log.write(topic, [[long_s.to_s, nil, nil, 0]])
    server.eventually("it runs") { evidence.count("in") == 1 }
    log.write(topic, Array.new(20) { ["0.1", nil, nil, 1] })
    server.eventually("the other partition goes on") { evidence.count >= 20 }
    server.eventually("it ends") { evidence.count == 21 }
    log.write(topic, [["0", nil, nil, 0]])
    server.eventually("the partition is still its own") { evidence.count == 22 }
    assert_all_committed(server)
    assert_equal [22, 0, 0], [evidence.count("in"), evidence.count("late"), evidence.count("revoked")]
    assert_equal 0, server.stop
  end

  # Running batches of a revoked partition may end, so that no record is consumed twice.
  each_log def test_a_revoked_partition_finishes_its_batch
    create(partitions: 4)
    log.write(topic, Array.new(40) { |n| ["0.1", "k#{n}", nil, n % 4] })
    first = boot_streams(CONSUMER, threads: "4..4", topics: [session, route(batch: 10)])
    first.eventually("all run") { evidence.all("in").map(&:partition).uniq.size == 4 }
    second = boot_streams(CONSUMER, threads: "4..4", topics: [session, route(batch: 10)])
    first.eventually("it gives some up") { evidence.count("revoked").positive? }
    log.write(topic, Array.new(40) { |n| ["0.01", "k#{n}", nil, n % 4] })
    first.eventually("all were done") { evidence.count == 80 }
    assert_equal [1], evidence.all("in").map { |entry| [entry.partition, entry.offset] }.tally.values.uniq
    assert_equal 2, evidence.all.map(&:pid).uniq.size
    assert_all_committed(first)
    [second, first].each { |server| assert_equal 0, server.stop }
  end

  # A batch has half of max_poll_interval. After that `revoked?` is true, and its records are not committed.
  each_log def test_a_longer_handler_sees_that_its_partition_is_revoked
    create(partitions: 2)
    first = boot_streams(CONSUMER, topics: [session, route])
    log.write(topic, [[long_s.to_s, nil, nil, 0], [long_s.to_s, nil, nil, 1]])
    first.eventually("both run") { evidence.count("in") == 2 }
    second = boot_streams(CONSUMER, topics: [session, route])
    first.eventually("another one has begun", timeout_s: 20) { evidence.count("in") == 3 }
    assert_operator evidence.all("in").map(&:at_s).minmax.reverse.reduce(:-), :<, long_s
    taken = evidence.all("in").max_by(&:at_s)
    assert_equal second.workers, [taken.pid]
    first.eventually("the handler sees it") { evidence.count("late") == 1 }
    late = evidence.all("late").first
    assert_equal [taken.partition, first.workers.first], [late.partition, late.pid]
    assert_equal 0, log.committed(group).fetch([topic, taken.partition], 0)
    first.eventually("both were done", timeout_s: 20) { evidence.count == 2 }
    assert_all_committed(first)
    [second, first].each { |server| assert_equal 0, server.stop }
  end
end
