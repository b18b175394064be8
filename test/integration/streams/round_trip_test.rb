# frozen_string_literal: true

require "test_helper"
require "support/event_client"
require "support/streams_test_case"

# Records from `Chaton.produce` in each kind of process reach `consume`, and messages from there reach event streams.
class StreamsRoundTripTest < Minitest::Test
  include StreamsTest

  # Responds with the record's partition and offset.
  WEB = <<~RUBY
    run(lambda do |env|
      next Chaton::EventStream.response(env, "said") if env["PATH_INFO"] == "/events"

      Chaton.broadcast("said", "web")
      receipt = Chaton.produce!("TOPIC", { "from" => "web", "n" => env["QUERY_STRING"] }, key: "k\#{env["QUERY_STRING"]}")
      [200, { "content-type" => "text/plain" }, ["\#{receipt.partition}/\#{receipt.offset}"]]
    end)
  RUBY
  JOB = <<~RUBY
    require "chaton/job"
    class Produce
      include Chaton::Job
      def perform(n)
        Chaton.broadcast("said", "job")
        Chaton.produce!("TOPIC", { "from" => "job", "n" => n.to_s }, key: "k\#{n}")
      end
    end
  RUBY
  JSON_CONSUMER = <<~RUBY
    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        batch.each do |record|
          Chaton.broadcast("said", "consumer", key: record.key)
          Evidence.note("did", topic, partition, record.offset, record.key, record.value.values.join("-"))
        end
      end
    end
  RUBY

  each_log def test_records_from_requests_jobs_and_scripts_arrive
    create
    server = boot_all_roles
    events = EventClient.new(server.port, "/events").connect
    place = server.get("/?1").body
    plain = console(server, env: { "RACK_ENV" => "production" })
    plain.run("require './app/jobs/produce'; Produce.perform_async(2); nil")
    plain.run("Chaton.produce!(#{topic.dump}, { from: 'plain', n: 3 }, key: 'k3'); Chaton.broadcast('said', 'plain')")
    server.eventually("all three came") { evidence.count == 3 }
    assert_equal %w[job-2 plain-3 web-1], evidence.values.sort
    assert_equal %w[consumer consumer consumer job plain web], events.take(6).sort
    web = evidence.all.find { |entry| entry.value == "web-1" }
    assert_equal place, "#{web.partition}/#{web.offset}"
    assert_all_committed(server)
    assert_equal 0, server.stop
    server.wait_all_gone
  end

  # All fields arrive unchanged.
  each_log def test_fields_arrive_unchanged
    create(partitions: 1)
    server = boot_streams(<<~RUBY)
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each do |r|
            received = [r.raw, r.value, r.key, r.headers, r.timestamp_ms, r.timestamp.to_f, r.offset, r.partition, r.topic]
            File.write("received", [Marshal.dump(received)].pack("m0") + "\\n", mode: "a")
            Evidence.note("did", topic, partition, r.offset)
          end
        end
      end
    RUBY
    bytes = (0..255).map(&:chr).join.b
    log.write(topic, [[bytes, "ключ", { "a" => "1", "b" => nil, "c" => %w[x y] }, 0, 1_700_000_000_123],
                      [nil, "tombstone"], ["", nil], ["no key"]])
    server.eventually("they came") { evidence.count == 4 }
    received = server.read("received").lines.map { |line| Marshal.load(line.unpack1("m")) } # rubocop:disable Security/MarshalLoad
    raw, value, key, headers, ms, seconds, offset, partition, name = received.first
    assert_equal [bytes, bytes, "ключ".b], [raw, value, key.b]
    assert_equal({ "a" => "1", "b" => nil, "c" => %w[x y] }, headers)
    assert_equal [1_700_000_000_123, 0, 0, topic], [ms, offset, partition, name]
    assert_in_delta 1_700_000_000.123, seconds, 0.0005
    assert_equal [[nil, nil, "tombstone", {}], ["", "", nil, {}], ["no key", "no key", nil, {}]],
                 received.drop(1).map { |some| [some[0], some[1], some[2], some[3]] }
    assert_in_delta Time.now.to_f, received.last[5], 60
    assert_equal 0, server.stop
  end

  # A key's hash chooses the partition, as in Kafka's own client. Records without a key are spread over all partitions.
  each_log def test_the_key_chooses_the_partition
    create(partitions: 4)
    server = prepare_streams
    plain = console(server, env: { "RACK_ENV" => "production" })
    places = plain.run(<<~RUBY)
      Array.new(40) { |n| Chaton.produce!(#{topic.dump}, "v", key: "key-\#{n % 10}").partition }
    RUBY
    assert_equal [1], (0...10).map { |key| places.each_slice(10).map { |round| round[key] }.uniq.size }.uniq
    # Results of murmur2 in Kafka's own Java client.
    known = { "21" => -973_932_308, "foobar" => -790_332_482, "a-little-bit-long-string" => -985_981_536 }
    known.each do |key, hash|
      found = plain.run("Chaton.produce!(#{topic.dump}, 'v', key: #{key.dump}).partition")
      assert_equal (hash & 0x7fffffff) % 4, found, key
    end
    # librdkafka keeps to a partition for some time and then chooses one at random.
    unkeyed = plain.run(<<~RUBY)
      limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 20
      seen = []
      until seen.uniq.size == 4 || Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
        seen << Chaton.produce!(#{topic.dump}, "w").partition
      end
      seen.uniq.sort
    RUBY
    assert_equal [0, 1, 2, 3], unkeyed
    assert_equal 2, plain.run("Chaton.produce!(#{topic.dump}, 'x', key: 'k', partition: 2).partition")
  end

  each_log def test_one_process_consumes_with_the_flag
    create
    server = prepare_streams(workers: "0")
    server.instance_variable_set(:@args, ["--streams"])
    server.start.ready
    log.write(topic, [%w[1 a]])
    server.eventually("it came") { evidence.count == 1 }
    assert_equal [server.pid], evidence.all.map(&:pid)
    assert_equal 0, server.stop
  end

  # One process consumes two topics in two groups; each group gets all records.
  each_log def test_one_process_consumes_for_two_groups
    create("events")
    create("orders")
    more = StreamsTest::NOTING.gsub("EventsConsumer", "OtherConsumer").gsub("did(record)", "did(record, \"other\")")
    other = route("events", consumer: "OtherConsumer", group: "#{group}-2")
    server = boot_streams(NOTING + more, topics: [route("events"), route("orders"), other])
    log.write(topic("events"), Array.new(100) { |n| ["e#{n}", "k#{n}"] })
    log.write(topic("orders"), Array.new(100) { |n| ["o#{n}", "k#{n}"] })
    server.eventually("all came") { evidence.count == 200 && evidence.count("other") == 100 }
    assert_equal 100, evidence.values(topic: topic("orders")).uniq.size
    assert_equal evidence.values(topic: topic("events")).sort, evidence.values("other").sort
    assert_equal 0, server.stop
  end

  private

  def boot_all_roles
    boot_streams(JSON_CONSUMER, topics: route(deserializer: :json), workers: "web: 1, jobs: 1, streams: 1",
                                rackup: WEB.gsub("TOPIC", topic),
                                config: "jobs { store \"sqlite://#{scratch}/jobs.db\"; load \"app/jobs\" }") do |server|
      server.write("app/jobs/produce.rb", JOB.gsub("TOPIC", topic))
    end
  end
end
