# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# Members of a group join and leave under load: no record is lost, and no partition is consumed by two members at once.
class StreamsMembersTest < Minitest::Test
  include StreamsTest

  CONSUMER = <<~RUBY
    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        Evidence.note("began", topic, partition)
        batch.each do |record|
          sleep 0.001
          Evidence.did(record)
          mark(record)
        end
      ensure
        Evidence.note("ended", topic, partition)
      end
      def revoked = Evidence.note("revoked", topic, partition)
    end
  RUBY
  SESSION = "session_timeout 4\nmax_poll_interval 6"
  PARTITIONS = 8

  def time_limit_s = 120

  each_log def test_members_join_and_leave_under_load
    create(partitions: PARTITIONS)
    writer = Writer.new(log, topic)
    servers = Array.new(2) { launch }.each(&:ready)
    everyone_works(servers)
    servers += Array.new(2) { launch }.each(&:ready)
    everyone_works(servers)
    # Two members leave gracefully, one is killed, and one is left.
    assert_equal 0, servers.shift.stop
    everyone_works(servers)
    assert_equal 0, servers.shift.stop
    servers.shift.kill_all
    everyone_works(servers, partitions: PARTITIONS)
    wanted = writer.stop
    assert_whole(servers.first, wanted)
    # Members that left gracefully had committed. Only the killed one may have left an uncommitted batch in each
    # partition.
    assert_operator evidence.count - wanted.size, :<=, PARTITIONS * 50
    assert_operator evidence.count("revoked"), :>, 0
    assert_equal 0, servers.first.stop
  end

  # With KIP-848 the broker assigns the partitions.
  def test_members_join_with_the_consumer_protocol_of_kip_848
    @kind = :kafka
    create(partitions: PARTITIONS)
    writer = Writer.new(log, topic)
    servers = Array.new(2) { launch(["max_poll_interval 6", route(batch: 50, protocol: :consumer)]) }.each(&:ready)
    everyone_works(servers)
    assert_equal 0, servers.shift.stop
    everyone_works(servers, partitions: PARTITIONS)
    assert_whole(servers.first, writer.stop)
    assert_equal 0, servers.first.stop
  end

  # Writes records until it is stopped.
  class Writer
    KEYS = 64

    def initialize(log, topic)
      @wanted = []
      @thread = Thread.new do
        number = 0
        until @stop
          @wanted.concat(log.write_sequences(topic, keys: KEYS, each: 2, from: number))
          number += 2
          sleep 0.05
        end
      end
    end

    # @return [Array<String>] "key=value" of all written records
    def stop
      @stop = true
      @thread.join
      @wanted
    end
  end

  private

  def launch(topics = [SESSION, route(batch: 50)])
    launch_streams(CONSUMER, threads: "2..8", topics: topics)
  end

  # Waits until each process has consumed a record, and each partition was consumed.
  def everyone_works(servers, partitions: 1)
    from_s = Evidence.now_s
    pids = servers.flat_map(&:workers)
    servers.first.eventually("all of #{pids} work", timeout_s: 40) do
      fresh = evidence.all.select { |entry| entry.at_s > from_s }
      (pids - fresh.map(&:pid)).empty? && fresh.map(&:partition).uniq.size >= partitions
    end
  end

  def assert_whole(server, wanted)
    server.eventually("every record was worked on", timeout_s: 40) { (wanted - done).empty? }
    assert_all_committed(server)
    assert_nothing_committed_too_early
    assert_empty evidence.out_of_order.first(5)
    assert_empty evidence.shared.first(5), "partitions that two processes worked on at once"
  end

  def done = evidence.all.map { |entry| "#{entry.key}=#{entry.value}" }.uniq
end
