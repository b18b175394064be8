# frozen_string_literal: true

require "test_helper"
require "support/admin_client"
require "support/open_metrics"
require "support/streams_test_case"

# Records that could not be written.
class StreamsDeliveryTest < Minitest::Test
  include StreamsTest

  WEB = <<~RUBY
    Chaton::Streams.on_delivery_error { |_error, _context| raise Exception, "a broken handler" }
    Chaton::Streams.on_delivery_error do |error, context|
      File.write("told", "\#{error.class} \#{context} \#{Process.pid}\\n", mode: "a")
    end
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/pid" then next [200, {}, [Process.pid.to_s]]
      when "/read" then receipt = Chaton.produce("TOPIC", "v"); begin; receipt.wait; rescue Chaton::StreamError; end
      else 7.times { Chaton.produce("TOPIC", "v") }
      end
      [200, {}, ["produced"]]
    end)
  RUBY

  def kind = :kafka

  def time_limit_s = 120

  def test_lost_records_whose_receipt_nobody_reads_are_told
    @broker = "kafka://127.0.0.1:1"
    server = boot_streams(topics: "delivery_timeout 1\ntopic #{topic.dump}", workers: "1", args: ["--web"],
                          rackup: WEB.gsub("TOPIC", topic), config: "admin { bind \"unix://admin.sock\" }")
    assert_equal "produced", server.get("/read").body
    server.get("/")
    told = server.eventually("it is told") { lines(server, "told").then { |all| all if all.sum { sum(_1) } == 7 } }
    assert_equal ["Chaton::StreamUnavailable"], told.map { |line| line[/\A\S+/] }.uniq
    assert_equal [server.get("/pid").body], told.map { |line| line[/\d+\z/] }.uniq
    assert_match(/WARN .*streams: the producer: .*127\.0\.0\.1:1.*no broker answers/, server.log)
    assert_match(/WARN .*records for topic "#{topic}" are lost, and nobody has read their receipts: a record of/,
                 server.log)
    assert_match(/WARN .*a handler of on_delivery_error failed: Exception: a broken handler/, server.log)
    metrics = OpenMetrics.new(AdminClient.new(server.path("admin.sock")).get("/metrics").body)
    assert_equal 7, metrics.value("chaton_stream_undelivered_records_total", topic: topic)
    assert_equal 0, server.stop
  end

  # A child of a process that has produced tells of its own records, too.
  def test_a_forked_child_tells_of_its_own_records
    @broker = "kafka://127.0.0.1:1"
    server = prepare_streams(topics: ["delivery_timeout 1", route])
    output = console(server).run(<<~RUBY)
      begin; Chaton.produce!(#{topic.dump}, "v"); rescue Chaton::StreamError; end
      reader, writer = IO.pipe
      pid = fork do
        Chaton::Streams.on_delivery_error { |_, context| writer.puts context[:records] }
        Chaton.produce(#{topic.dump}, "v")
        sleep
      end
      answer = reader.gets
      Process.kill("KILL", pid)
      Process.wait(pid)
      answer
    RUBY
    assert_equal "1\n", output
  end

  # The first batch produces into a topic that is not there yet.
  def test_a_batch_can_wait_for_what_it_has_produced
    create(partitions: 1)
    log.write(topic, [["a"]])
    server = boot_streams(<<~RUBY, topics: route(wait_for_deliveries: true, backoff: 0.1))
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each { |record| Chaton.produce(#{topic("out").dump}, record.raw) }
        end
      end
    RUBY
    server.eventually("it fails", timeout_s: 40) { server.log.include?("a batch failed; it is retried") }
    assert_match(/error=Chaton::UnknownTopic reason=.*#{topic("out")}/, server.log)
    assert_empty log.committed(group)
    create("out", partitions: 1)
    assert_all_committed(server, timeout_s: 60)
    assert_equal(["a"], log.read(topic("out")).map { |record| record[:value] })
    assert_equal 0, server.stop
  end

  # What is written beside a transaction, like what it marks.
  def test_the_marks_of_a_transaction_wait_as_well
    create(partitions: 1)
    log.write(topic, [["a"]])
    server = boot_streams(<<~RUBY, topics: route(wait_for_deliveries: true, transactional: true, backoff: 0.1))
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          transaction do |tx|
            batch.each { |record| Chaton.produce(#{topic("out").dump}, record.raw) }
            tx.mark(batch)
          end
        end
      end
    RUBY
    server.eventually("it fails", timeout_s: 40) { server.log.include?("a batch failed; it is retried") }
    assert_empty log.committed(group)
    create("out", partitions: 1)
    assert_all_committed(server, timeout_s: 60)
    assert_equal 0, server.stop
  end

  def test_a_batch_waits_while_kafka_is_dead
    @kafka = KafkaBroker.new.start
    (@stores ||= []) << @kafka
    create(partitions: 1)
    create("out", partitions: 1)
    log.write(topic, [["a"]])
    line = route(wait_for_deliveries: true, backoff: 0.1)
    server = boot_streams(<<~RUBY, topics: ["delivery_timeout 4", line])
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          File.write("producing", attempt.to_s)
          sleep 0.02 until File.exist?("go")
          batch.each { |record| Chaton.produce(#{topic("out").dump}, record.raw) }
        end
      end
    RUBY
    server.eventually("it produces") { lines(server, "producing").any? }
    kafka.kill
    File.write(server.path("go"), "")
    server.eventually("it fails", timeout_s: 40) { server.log.include?("a batch failed; it is retried") }
    assert_match(/error=Chaton::StreamUnavailable/, server.log)
    kafka.start
    assert_all_committed(server, timeout_s: 60)
    assert_includes log.read(topic("out")).map { |record| record[:value] }, "a"
    assert_operator Integer(lines(server, "producing").first), :>, 1
    assert_equal 0, server.stop
  end

  private

  def lines(server, name) = File.exist?(server.path(name)) ? File.readlines(server.path(name), chomp: true) : []

  def sum(line) = Integer(line[/records\D+(\d+)/, 1])
end
