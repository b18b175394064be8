# frozen_string_literal: true

require "test_helper"
require "support/cpu_time"
require "support/streams_test_case"

# The broker dies, hangs, does not exist, or rejects the credentials.
class StreamsKafkaTroubleTest < Minitest::Test
  include StreamsTest

  SESSION = "session_timeout 6\nmax_poll_interval 10"
  # Shorter than the default of a minute, and twice the broker's timeout for a silent member.
  STOPPED_S = 8
  WEB = <<~RUBY
    run(lambda do |env|
      next [200, {}, ["hello"]] if env["PATH_INFO"] == "/"
      Chaton.produce!("TOPIC", "from web")
      [200, {}, ["produced"]]
    rescue Chaton::StreamError => e
      [503, {}, ["\#{e.class}: \#{e.message}"]]
    end)
  RUBY

  def kind = :kafka

  def time_limit_s = 120

  def test_a_killed_broker_loses_no_record
    own_broker
    wanted, server = crowd
    # Records that a client writes meanwhile arrive, too.
    plain = console(server)
    plain.start("Chaton.produce_many(#{topic.dump}, Array.new(2_000) { { value: _1.to_s, key: \"late\" } }).wait(60)")
    kafka.kill
    server.eventually("it is noticed") { server.log.match?(/WARN.*#{kafka.port}/) }
    # Workers still consume batches that they had read.
    CpuTime.window(server.workers.first, 2) { |share| assert_operator share, :<, 0.5 }
    kafka.start
    assert plain.result(timeout_s: 70)
    wanted += Array.new(2_000) { |n| "late=#{n}" }
    assert_whole(server, wanted)
    assert_equal 0, server.stop
  end

  def test_a_hanging_broker_loses_no_record
    own_broker
    wanted, server = crowd
    kafka.pause
    CpuTime.window(server.workers.first, STOPPED_S) { |share| assert_operator share, :<, CpuTime::REST * 2 }
    kafka.resume
    assert_whole(server, wanted)
    assert_equal 0, server.stop
  end

  # No broker listens at the address: consumers wait, `produce!` raises, and web requests are served.
  def test_a_wrong_address_is_logged_and_does_not_stop_web
    @broker = "kafka://127.0.0.1:1"
    server = boot_beside_web("delivery_timeout 1")
    server.eventually("it is logged") { server.log.match?(/WARN.*127\.0\.0\.1:1/) }
    assert_web_goes_on(server)
    answer = server.get("/produce")
    assert_equal 503, answer.status
    assert_match(/Chaton::StreamUnavailable.*127\.0\.0\.1:1/, answer.body)
    # The connection is retried without a log line each time.
    CpuTime.window(server.workers.first, 3) { |share| assert_operator share, :<, CpuTime::REST }
    assert_operator server.log.scan(/WARN|ERROR/).size, :<=, 4
    assert_equal 0, server.stop
  end

  def test_wrong_credentials_are_logged
    own_broker(sasl: true)
    create
    @broker = kafka.sasl_url
    server = boot_beside_web("#{credentials("wrong-of-the-test")}\ndelivery_timeout 3")
    server.eventually("it is logged") { server.log.match?(/(?:WARN|ERROR).*(?:credential|password|[Aa]uthenticat)/) }
    assert_web_goes_on(server)
    answer = server.get("/produce")
    assert_equal 503, answer.status
    assert_match(/Chaton::StreamRefused|Chaton::StreamUnavailable/, answer.body)
    assert_operator server.log.scan(/WARN|ERROR/).size, :<=, 6
    refute_match(/of-the-test/, server.log + answer.body)
    assert_equal 0, server.stop
    right = boot_streams(topics: [credentials(KafkaBroker::PASSWORD), route])
    console(right).run("Chaton.produce!(#{topic.dump}, 'v'); nil")
    right.eventually("it came") { evidence.count == 1 }
    assert_equal 0, right.stop
  end

  # The missing topic is logged once, and consumed as soon as it exists.
  def test_a_missing_topic_is_logged_and_consumed_later
    create("other")
    server = boot_streams(topics: [SESSION, route, route("other")])
    server.eventually("it is named") { server.log.match?(/WARN.*#{topic}/) }
    log.write(topic("other"), [["v"]])
    server.eventually("the other one is consumed") { evidence.count == 1 }
    assert_operator server.log.scan(/WARN.*#{topic}/).size, :<=, 2
    raised = assert_raises(Console::Raised) { console(server).run("Chaton.produce!(#{topic.dump}, 'v')") }
    assert_equal "Chaton::UnknownTopic", raised.kind
    assert_match(/#{topic}/, raised.message)
    create
    log.write(topic, [["w"]])
    server.eventually("it is consumed", timeout_s: 40) { evidence.values.sort == %w[v w] }
    assert_equal 0, server.stop
  end

  # A property that librdkafka does not know ends the boot, and the error suggests the right name.
  def test_a_misspelt_property_ends_the_boot
    server = launch_streams(topics: ["kafka \"socket.keepalive.enabel\" => true", route],
                            config: StreamsServer::FAILING)
    assert_equal 1, server.wait_exit(timeout_s: 40)
    assert_match(/socket\.keepalive\.enabel/, server.log)
    assert_match(/socket\.keepalive\.enable\b/, server.log)
  end

  private

  # A broker of this test, which may be killed.
  def own_broker(**options)
    @kafka = KafkaBroker.new(**options).start
    (@stores ||= []) << @kafka
  end

  def crowd
    create
    wanted = log.write_sequences(topic, keys: 16, each: 500)
    server = boot_streams(<<~RUBY, topics: [SESSION, route(batch: 50)])
      class EventsConsumer < Chaton::Consumer
        def consume(batch) = batch.each { |record| Evidence.did(record) && sleep(0.001) }
      end
    RUBY
    server.eventually("they come") { evidence.count > wanted.size / 10 }
    [wanted, server]
  end

  def credentials(password)
    "username #{KafkaBroker::USERNAME.dump}\npassword #{password.dump}\nmechanism \"SCRAM-SHA-512\""
  end

  def boot_beside_web(settings)
    boot_streams(topics: [settings, route], workers: "1", rackup: WEB.sub("TOPIC", topic), args: ["--web", "--streams"])
  end

  def assert_web_goes_on(server)
    20.times { assert_equal "hello", server.get("/").body }
  end

  def assert_whole(server, wanted)
    server.eventually("every record was worked on", timeout_s: 60) do
      (wanted - evidence.all.map { |entry| "#{entry.key}=#{entry.value}" }).empty?
    end
    assert_all_committed(server, timeout_s: 60)
    assert_nothing_committed_too_early
    assert_empty evidence.out_of_order.first(5)
  end
end
