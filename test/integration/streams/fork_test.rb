# frozen_string_literal: true

require "test_helper"
require "support/streams_test_case"

# Producing in processes that fork: the log's client does not cross a fork, and no record is lost.
class StreamsForkTest < Minitest::Test
  include StreamsTest

  # Produces in a child that a request forks.
  WEB = <<~RUBY
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

  each_log def test_records_produced_in_a_child_of_a_worker_arrive
    create
    config = "on_worker_boot { |index| Chaton.produce(\"#{topic}\", \"boot\#{index}\") }"
    server = boot_streams(workers: "web: 1, streams: 1", rackup: WEB.gsub("TOPIC", topic), config: config)
    server.eventually("what was produced at boot") { evidence.count >= 2 }
    assert_match(/\A0 \d+\z/, server.get("/").body)
    server.eventually("the others") { evidence.count >= 6 }
    assert_equal %w[after boot0 boot1 child parent unwaited], evidence.values.sort
    assert_equal 0, server.stop
    server.wait_all_gone
    assert_equal 6, log.read(topic).size
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

  each_log def test_records_produced_at_boot_of_one_process_arrive
    create
    rackup = "Array.new(3) { |n| Chaton.produce(\"TOPIC\", \"boot\#{n}\") }\n#{WEB}".gsub("TOPIC", topic)
    server = boot_streams(workers: "0", rackup: rackup, args: ["--web", "--streams"])
    assert_match(/\A0 #{server.pid}\z/, server.get("/").body)
    server.eventually("all came") { evidence.count >= 7 }
    assert_equal %w[after boot0 boot1 boot2 child parent unwaited], evidence.values.sort
    assert_equal 0, server.stop
  end
end
