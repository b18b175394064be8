# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# The features of consumers and routes, on real logs.
class StreamsFeaturesTest < Minitest::Test
  include StreamsTest

  each_log def test_keys_run_in_parallel_and_each_in_order
    create(partitions: 1)
    wanted = log.write_sequences(topic, keys: 8, each: 25)
    server = boot_streams(<<~RUBY, threads: "8..8", topics: route(concurrency: 4, order: :key, batch: 50))
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each do |record|
            Evidence.did(record, "in")
            sleep 0.005
            Evidence.did(record)
            Evidence.did(record, "out")
          end
        end
      end
    RUBY
    server.eventually("all came") { evidence.count == wanted.size }
    assert_equal 1, evidence.together_max(&:key)
    assert_operator evidence.together_max(&:place), :>=, 3
    assert_operator evidence.together_max(&:place), :<=, 4
    assert_empty evidence.out_of_order
    assert_all_committed(server)
    assert_equal 0, server.stop
  end

  each_log def test_partitions_run_in_parallel
    create(partitions: 4)
    wanted = log.write_sequences(topic, keys: 40, each: 10)
    server = boot_streams(<<~RUBY, threads: "8..8")
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          Evidence.note("in", topic, partition)
          batch.each { |record| Evidence.did(record) && sleep(0.003) }
          Evidence.note("out", topic, partition)
        end
      end
    RUBY
    server.eventually("all came") { evidence.count == wanted.size }
    assert_equal 1, evidence.together_max(&:partition)
    assert_operator evidence.together_max(&:topic), :>=, 3
    assert_equal 0, server.stop
  end

  each_log def test_pause_stops_one_partition_only
    create(partitions: 2)
    server = boot_streams(<<~RUBY)
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each { |record| Evidence.did(record) }
          pause(4) if batch.any? { |record| record.raw == "pause" }
        end
      end
    RUBY
    log.write(topic, [["pause", nil, nil, 0]])
    server.eventually("it pauses") { evidence.count == 1 }
    paused_s = evidence.all.first.at_s
    log.write(topic, [["held", nil, nil, 0], ["free", nil, nil, 1]])
    server.eventually("both came") { evidence.count == 3 }
    at_s = evidence.all.to_h { |entry| [entry.value, entry.at_s - paused_s] }
    assert_operator at_s["free"], :<, at_s["held"]
    assert_operator at_s["held"], :>=, 3.9
    assert_equal 0, server.stop
  end

  each_log def test_seek_moves_backward_and_forward
    create(partitions: 1)
    log.write(topic, Array.new(10) { |n| [n.to_s] })
    server = boot_streams(<<~RUBY, topics: route(batch: 10))
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each { |record| Evidence.did(record) }
          rounds = File.exist?("rounds") ? File.read("rounds").to_i : 0
          File.write("rounds", (rounds + 1).to_s)
          seek(:earliest) if rounds == 0
          seek(7) if rounds == 1
        end
      end
    RUBY
    server.eventually("thrice") { evidence.count >= 23 }
    assert_equal [*0..9, *0..9, *7..9], evidence.all.map(&:offset)
    assert_all_committed(server)
    assert_equal 0, server.stop
  end

  each_log def test_delayed_records_wait_and_expired_records_are_skipped
    create(partitions: 1)
    now_ms = (Time.now.to_f * 1000).to_i
    server = boot_streams(topics: route(delay: 1.5, expires: 60.0))
    old = now_ms - 600_000
    written_s = Evidence.now_s
    log.write(topic, [["expired", nil, nil, 0, old], ["due", nil, nil, 0, now_ms - 5_000],
                      # The time is rounded up, because the delay counts from the record's time in whole milliseconds.
                      ["young", nil, nil, 0, (Time.now.to_f * 1000).ceil]])
    server.eventually("both came") { evidence.count == 2 }
    assert_equal %w[due young], evidence.values
    assert_operator evidence.all.last.at_s - written_s, :>=, 1.5
    assert_equal(1, server.status.fetch("topics").sum { |one| one["expired"] })
    assert_all_committed(server)
    assert_equal 0, server.stop
  end

  each_log def test_a_throttle_limits_the_rate
    create(partitions: 1)
    log.write(topic, Array.new(450) { |n| [n.to_s] })
    server = boot_streams(topics: route(throttle: [100, 1.0]))
    server.eventually("all came") { evidence.count == 450 }
    took_s = evidence.all.last.at_s - evidence.all.first.at_s
    # The bucket holds 100 records and gains 100 per second, so 450 records take 3.5 s, less the time before the first
    # one.
    assert_operator took_s, :>=, 2.8
    assert_equal (0...450).map(&:to_s), evidence.values
    assert_equal 0, server.stop
  end

  each_log def test_filtered_records_are_committed_without_reaching_the_consumer
    create(partitions: 1)
    log.write(topic, Array.new(100) { |n| [n.to_s] })
    server = boot_streams(<<~RUBY)
      class EventsConsumer < Chaton::Consumer
        filter { |record| record.raw.to_i % 10 == 3 }
        def consume(batch) = batch.each { |record| Evidence.did(record) }
      end
    RUBY
    assert_all_committed(server)
    assert_equal %w[3 13 23 33 43 53 63 73 83 93], evidence.values
    assert_equal 0, server.stop
  end

  # A new process consumes the unmarked records again.
  each_log def test_only_marked_records_are_committed_with_manual_offsets
    create(partitions: 1)
    log.write(topic, Array.new(20) { |n| [n.to_s] })
    consumer = <<~RUBY
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each { |record| Evidence.did(record) }
          found = batch.find { |record| record.raw == "11" }
          mark(found) if found
        end
      end
    RUBY
    server = boot_streams(consumer, topics: route(offsets: :manual, batch: 100))
    server.eventually("all came") { evidence.count == 20 }
    assert_equal 0, server.stop
    assert_equal({ [topic, 0] => 12 }, log.committed(group))
    server.start.ready
    server.eventually("the rest came again") { evidence.count == 28 }
    assert_equal (12..19).map(&:to_s), evidence.values.last(8)
    assert_equal 0, server.stop
  end

  each_log def test_the_consumer_is_called_at_the_end_of_a_partition
    create(partitions: 1)
    log.write(topic, Array.new(50) { |n| [n.to_s] })
    server = boot_streams(<<~RUBY, topics: route(batch: 10))
      class EventsConsumer < Chaton::Consumer
        def consume(batch) = batch.each { |record| Evidence.did(record) }
        def eof = Evidence.note("end", topic, partition)
        def shutdown = Evidence.note("shutdown", topic, partition)
      end
    RUBY
    server.eventually("its end") { evidence.count("end") == 1 }
    assert_equal 50, evidence.count
    assert_equal "end", evidence.entries.last.event
    assert_equal 0, server.stop
    assert_equal 1, evidence.count("shutdown")
  end

  each_log def test_start_latest_reads_only_new_records
    create(partitions: 1)
    log.write(topic, [["before"]])
    server = boot_streams(topics: route(start: :latest))
    number = 0
    server.eventually("something came") do
      log.write(topic, [["after#{number += 1}"]])
      evidence.count.positive?
    end
    refute_includes evidence.values, "before"
    assert_equal 0, server.stop
  end
end
