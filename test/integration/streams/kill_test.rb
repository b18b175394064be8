# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# Kills of workers and of all processes while they consume: every record is consumed at least once, the records of a key
# in their order, and no record is committed before it was consumed.
class StreamsKillTest < Minitest::Test
  include StreamsTest

  CONSUMER = <<~RUBY
    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        batch.each do |record|
          sleep 0.0005
          Evidence.did(record)
          mark(record)
        end
      end
    end
  RUBY
  KEYS = 24
  EACH = Soak.number(200, 500)
  KILLS = Soak.number(8, 20)
  # Kills of the whole process tree, after each of which the test waits for a boot.
  ROUNDS = Soak.number(2, 3)
  # Kafka notices a dead member by its silence. This is the shortest timeout that the tests' broker allows; 45 s is
  # usual.
  SESSION = "session_timeout 1.5\nmax_poll_interval 6"

  def time_limit_s = 150

  each_log def test_killed_workers_lose_no_record
    wanted = fill
    server = boot
    KILLS.times do |round|
      # The kills end well before the last record.
      progress(server, wanted.size * (round + 1) / (KILLS * 2))
      victim = busy_worker(server)
      server.signal("KILL", victim)
      assert_nothing_committed_too_early
    end
    assert_whole(server, wanted)
    assert_equal KILLS, server.log.scan("ERROR worker died").size
    assert_equal 0, server.stop
  end

  each_log def test_a_killed_process_tree_loses_no_record
    wanted = fill
    server = boot
    ROUNDS.times do |round|
      progress(server, wanted.size * (round + 1) / (ROUNDS + 2))
      server.kill_all
      assert_nothing_committed_too_early
      server.start.ready
    end
    assert_whole(server, wanted)
    assert_equal 0, server.stop
  end

  # Several keys of a partition run in parallel. Records past the first unfinished one are listed in the commit's
  # metadata.
  each_log def test_kills_with_parallel_keys_lose_no_record
    wanted = fill
    server = boot(concurrency: 4, order: :key)
    (KILLS / 4).times do |round|
      progress(server, wanted.size * (round + 1) / (KILLS / 4 * 2))
      server.signal("KILL", busy_worker(server))
      assert_nothing_committed_too_early
    end
    assert_whole(server, wanted)
    assert_equal 0, server.stop
  end

  private

  def fill
    create(partitions: 4)
    log.write_sequences(topic, keys: KEYS, each: EACH)
  end

  def boot(**options)
    boot_streams(CONSUMER, workers: "streams: 2", threads: "4..4", config: StreamsServer::QUICK,
                           topics: [SESSION, route(batch: 100, **options)])
  end

  def progress(server, count)
    server.eventually("#{count} records", timeout_s: 60) { evidence.entries.size >= count }
  end

  # Returns a worker that consumes and was not killed before: its newest entry is the newest of all.
  def busy_worker(server)
    @killed ||= []
    victim = server.eventually("a worker consumes") do
      pids = server.workers - @killed
      latest = evidence.entries.max_by(&:at_s)
      latest.pid if latest && pids.include?(latest.pid) && Evidence.now_s - latest.at_s < 0.05
    end
    @killed << victim
    victim
  end

  def assert_whole(server, wanted)
    server.eventually("every record was worked on", timeout_s: 60) { (wanted - done).empty? }
    assert_all_committed(server)
    assert_nothing_committed_too_early
    assert_empty evidence.out_of_order.first(5), "records of a key were worked on after newer ones"
    assert_empty(done - wanted)
  end

  def done = evidence.all.map { |entry| "#{entry.key}=#{entry.value}" }.uniq
end
