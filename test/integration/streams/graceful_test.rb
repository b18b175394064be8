# frozen_string_literal: true

require "test_helper"
require "support/cpu_time"
require "support/streams_test_case"

# Graceful stops, quieting and restarts.
class StreamsGracefulTest < Minitest::Test
  include StreamsTest

  CONSUMER = <<~RUBY
    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        batch.each { |record| Evidence.did(record) && sleep(0.001) }
      end
      def shutdown = Evidence.note("shutdown", topic, partition)
    end
  RUBY
  # Is slow until a file appears, so that the workers of each generation have records to consume.
  SLOW = <<~RUBY
    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        batch.each { |record| Evidence.did(record) && sleep(File.exist?("fast") ? 0.001 : 0.05) }
      end
    end
  RUBY
  KEYS = 16

  def time_limit_s = 90

  # Running batches end and are committed, so that no record comes twice.
  each_log def test_stops_lose_no_record_and_repeat_none
    wanted = fill(250)
    server = boot_streams(CONSUMER, topics: route(batch: 50))
    3.times do |round|
      server.eventually("progress") { evidence.count > wanted.size * (round + 1) / 5 }
      assert_equal 0, server.stop
      server.wait_all_gone
      assert_equal log.committed(group).values.sum, evidence.count
      server.start.ready
    end
    assert_once(server, wanted)
    assert_operator evidence.count("shutdown"), :>=, 4
    assert_equal 0, server.stop
  end

  each_log def test_phased_restarts_under_load_lose_no_record_and_repeat_none
    wanted = fill(400)
    server = boot_streams(SLOW, workers: "streams: 2", topics: route(batch: 50))
    2.times { |round| restart_phased(server, round + 1) }
    server.write("fast", "")
    assert_once(server, wanted)
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  # Kafka fences a static member when another one joins with the same name.
  def test_static_members_leave_before_their_successors_join
    @kind = :kafka
    wanted = fill(400)
    server = boot_streams(SLOW, workers: "streams: 2", topics: ["static_membership true", route(batch: 50)])
    restart_phased(server, 1)
    server.write("fast", "")
    assert_once(server, wanted)
    refute_match(/fenced/i, server.log)
    assert_equal 0, server.stop
  end

  # The server does not wait for a handler past the deadline. Its marked records are committed, and the others come
  # again.
  each_log def test_unmarked_records_of_a_handler_past_the_deadline_come_again
    create(partitions: 1)
    log.write(topic, Array.new(10) { |n| [n.to_s] })
    server = boot_streams(<<~RUBY, config: "shutdown_timeout_s 1")
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each do |record|
            sleep 60 if record.raw == "4" && !File.exist?("mended")
            Evidence.did(record)
            mark(record)
          end
        end
      end
    RUBY
    server.eventually("it hangs") { evidence.count == 4 }
    server.stop(timeout_s: 30)
    server.wait_all_gone
    server.write("mended", "")
    server.start.ready
    assert_all_committed(server)
    assert_equal (0..9).map(&:to_s), evidence.values.uniq
    assert_nothing_committed_too_early
    assert_equal 0, server.stop
  end

  each_log def test_tstp_makes_a_worker_quiet
    create(partitions: 2)
    server = boot_streams(CONSUMER)
    log.write(topic, [["a", "k"]])
    server.eventually("it came") { evidence.count == 1 }
    assert_all_committed(server)
    server.signal("TSTP")
    # The worker's own line; the supervisor's line comes earlier.
    server.wait_line(/no more records are fetched/)
    log.write(topic, Array.new(20) { |n| [n.to_s, "k#{n}"] })
    # Many times the duration of a fetch.
    CpuTime.window(server.workers.first, 1) { |share| assert_operator share, :<, CpuTime::REST }
    assert_equal 1, evidence.count
    assert_equal 0, server.stop
  end

  # The process writes its produced records before it ends.
  each_log def test_a_process_sends_its_buffer_before_it_ends
    create
    server = prepare_streams
    plain = Console.new(server.dir, requires: ["chaton"])
    (@consoles ||= []) << plain
    plain.start("2_000.times { |n| Chaton.produce(#{topic.dump}, n.to_s) }; exit")
    server.eventually("all is there") { log.size(topic) == 2_000 }
  end

  private

  def fill(each)
    create(partitions: 4)
    log.write_sequences(topic, keys: KEYS, each: each)
  end

  # Restarts while all workers consume, and waits until all new workers consume.
  def restart_phased(server, count)
    assert_all_work(server)
    server.signal("USR1")
    server.wait_line(/phased restart done/, count: count, timeout_s: 40)
    assert_all_work(server)
  end

  # Waits until each worker of this generation has consumed a record.
  def assert_all_work(server)
    workers = server.workers
    server.eventually("each worker works", timeout_s: WAIT_S) { (workers - evidence.all.map(&:pid)).empty? }
  end

  def assert_once(server, wanted)
    assert_all_committed(server, timeout_s: 60)
    done = evidence.all.map { |entry| "#{entry.key}=#{entry.value}" }
    assert_empty(wanted - done)
    assert_empty(done.tally.select { |_, count| count > 1 }.first(5), "done twice")
    assert_empty evidence.out_of_order.first(5)
  end
end
