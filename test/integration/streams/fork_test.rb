# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# Producing in processes that fork: the log's client does not cross a fork, and no record is lost.
class StreamsForkTest < Minitest::Test
  include StreamsTest

  # Produces at boot, before workers are forked, and in a child that a request forks.
  WEB = <<~RUBY
    Array.new(3) { |n| Chaton.produce("TOPIC", "boot\#{n}") }
    run(lambda do |env|
      Chaton.produce!("TOPIC", "parent")
      pid = fork do
        Chaton.produce!("TOPIC", "child")
        Chaton.produce("TOPIC", "unwaited")
      end
      status = Process.wait2(pid).last
      Chaton.produce!("TOPIC", "after")
      [200, {}, ["\#{status.exitstatus} \#{Process.pid}"]]
    end)
  RUBY

  each_log def test_records_produced_before_a_fork_and_in_a_child_of_a_worker_arrive
    create
    server = boot_streams(workers: "web: 2, streams: 1", rackup: WEB.gsub("TOPIC", topic))
    server.eventually("what was produced at boot") { evidence.count >= 3 }
    assert_match(/\A0 \d+\z/, server.get("/").body)
    server.eventually("the others") { evidence.count >= 7 }
    assert_equal %w[after boot0 boot1 boot2 child parent unwaited], evidence.values.sort
    assert_equal 0, server.stop
    server.wait_all_gone
    # The stopped worker has sent all records of the spool.
    assert_equal 7, log.read(topic).size
  end

  each_log def test_a_worker_that_consumes_can_fork
    create
    server = boot_streams(<<~RUBY)
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each do |record|
            next Evidence.did(record) unless record.raw == "fork"
            pid = fork { Chaton.produce!("#{topic}", "from the child".tr(" ", "-")) }
            Evidence.note("did", topic, partition, record.offset, "-", "exit\#{Process.wait2(pid).last.exitstatus}")
          end
        end
      end
    RUBY
    3.times { log.write(topic, [["fork"]]) }
    server.eventually("all came") { evidence.count == 6 }
    assert_equal({ "exit0" => 3, "from-the-child" => 3 }, evidence.values.tally)
    assert_all_committed(server)
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  # Without workers the process itself sends the records of the spool.
  each_log def test_records_produced_at_boot_of_one_process_arrive
    create
    server = boot_streams(workers: "0", rackup: WEB.gsub("TOPIC", topic), args: ["--web", "--streams"])
    assert_match(/\A0 #{server.pid}\z/, server.get("/").body)
    server.eventually("all came") { evidence.count >= 7 }
    assert_equal %w[after boot0 boot1 boot2 child parent unwaited], evidence.values.sort
    assert_equal 0, server.stop
  end
end
