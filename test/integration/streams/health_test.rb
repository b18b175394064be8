# frozen_string_literal: true

require "test_helper"
require "support/admin_client"
require "support/open_metrics"
require "support/streams_test_case"

# /ready and /metrics of workers that read streams.
class StreamsHealthTest < Minitest::Test
  include StreamsTest

  TOKEN = "0123456789abcdef"

  def kind = :local

  def time_limit_s = 240

  def test_streams_are_ready_when_their_groups_are_joined
    create
    server = boot_streams(config: "admin { bind \"unix://admin.sock\" }")
    ready(server, 200)
    server.signal("TSTP")
    why = ready(server, 503).reasons
    assert_match(/streams is not ready: worker 0 reads with 0 of its 1 consumer groups/, why)
    assert_equal 200, AdminClient.new(server.path("admin.sock")).get("/live").status
    assert_equal 0, server.stop(timeout_s: 60)
  end

  def test_streams_are_not_ready_while_they_are_too_far_behind
    create
    log.write(topic, Array.new(10) { |number| [number.to_s, "k#{number}"] })
    server = boot_streams(<<~RUBY, config: "admin { bind \"unix://admin.sock\"; lag_max 9 }")
      class EventsConsumer < Chaton::Consumer
        def consume(batch) = batch.each { |_| sleep 0.01 until File.exist?("go") }
      end
    RUBY
    ready(server, 503, /worker 0 is 10 records behind in one of its topics \(lag_max is 9\)/)
    server.write("go", "")
    ready(server, 200)
    assert_equal 0, server.stop(timeout_s: 60)
  end

  def test_a_partition_that_has_stopped_at_lost_records_is_shown_everywhere
    create(partitions: 1)
    [50, 1, 49].inject(0) do |first, count|
      log.write(topic, Array.new(count) { |number| ["value #{first + number}"] })
      first + count
    end
    change_log("UPDATE record_batches SET crc=crc+1 WHERE id & 255=50")
    server = boot_streams(topics: route(on_gap: :stop),
                          config: "admin { bind \"unix://admin.sock\"; token #{TOKEN.dump} }")
    why = ready(server, 503, /has stopped 1 partition at lost records/).reasons
    assert_match(/streams is not ready: worker 0 has stopped 1 partition at lost records \(on_gap: :stop\)/, why)
    lost = evidence.offsets.values.flatten.max + 1
    left = 99 - lost
    labels = { topic: topic, group: group }
    names = %w[stopped_partitions partitions lag].map { |name| "chaton_stream_#{name}" }
    metrics(server, "the stop and the lag are counted") do |found|
      names.map { |name| found.value(name, **labels) } == [1, 1, left]
    end
    status = JSON.parse(server.run_command("status", "--json").first).dig("streams", "groups", 0)
    stopped = [{ "topic" => topic, "partition" => 0, "from" => lost, "to" => lost }]
    assert_equal [1, left, stopped], status.values_at("partitions", "lag", "stopped")
    rows = JSON.parse(server.run_command("streams", "lag", "--json").first)["partitions"]
    assert_equal [left, [lost, lost]], rows[0].values_at("lag", "stopped")
    assert_match(%r{has stopped in #{topic}/0: records #{lost} to #{lost} are gone}, server.run_command("status").first)
    bearer = { "Authorization" => "Bearer #{TOKEN}" }
    document = AdminClient.new(server.path("admin.sock")).get("/dashboard.json", headers: bearer).json
    shown = document["streams"].find { |one| one["topic"] == topic }
    assert_equal [1, 1, left], shown.values_at("partitions", "stopped", "lag")
    assert_equal 0, server.stop(timeout_s: 60)
  end

  def test_records_and_lag_are_counted_by_topic_and_group
    create(partitions: 2)
    log.write(topic, Array.new(10) { |number| [number.to_s, "k#{number}"] })
    server = boot_streams(<<~RUBY, config: "admin { bind \"unix://admin.sock\" }")
      class EventsConsumer < Chaton::Consumer
        def consume(batch)
          batch.each { |record| Evidence.did(record) }
          sleep 0.01 until File.exist?("go")
        end
      end
    RUBY
    labels = { topic: topic, group: group }
    metrics(server, "the lag and its age are shown") do |found|
      found.value("chaton_stream_lag", **labels) == 10 && found.value("chaton_stream_lag_age_seconds", **labels) > 1
    end
    server.write("go", "")
    found = metrics(server, "all are done") do |one|
      %w[lag lag_age_seconds].all? { |name| one.value("chaton_stream_#{name}", **labels).zero? }
    end
    assert_equal 10, found.value("chaton_stream_records_total", **labels)
    assert_operator found.value("chaton_stream_rebalances_total", **labels), :>=, 1
    assert_equal 0, found.value("chaton_stream_dead_letters_total", **labels)
    server.signal("KILL", server.workers.first)
    metrics(server, "the worker has died") { |one| one.value("chaton_worker_exits_total", reason: "died") == 1 }
    assert_equal 10, metrics(server, "it is there") { true }.value("chaton_stream_records_total", **labels)
    assert_equal 0, server.stop(timeout_s: 60)
  end

  private

  def metrics(server, what)
    server.eventually(what, timeout_s: 60) do
      found = OpenMetrics.new(AdminClient.new(server.path("admin.sock")).get("/metrics").body)
      found if yield(found)
    end
  end

  def ready(server, status, why = //)
    server.eventually("it is #{status}", timeout_s: 60) do
      answer = AdminClient.new(server.path("admin.sock")).get("/ready?role=streams")
      answer if answer.status == status && answer.reasons.match?(why)
    end
  end
end
