# frozen_string_literal: true

require "test_helper"
require "support/admin_client"
require "support/open_metrics"
require "support/streams_test_case"

# What the metrics tell about Kafka's brokers.
class BrokerMetricsTest < Minitest::Test
  include StreamsTest

  def kind = :kafka

  def time_limit_s = 240

  def test_traffic_with_brokers_is_counted_by_their_numbers
    create(partitions: 1)
    log.write(topic, [["k", "v"]])
    server = boot_streams(config: "admin { bind \"unix://admin.sock\" }\n" \
                                  "constants_for_tests admin_broker_statistics_s: 1.0")
    found = server.eventually("brokers are counted", timeout_s: 60) do
      metrics = OpenMetrics.new(AdminClient.new(server.path("admin.sock")).get("/metrics").body)
      numbers = metrics.labels("chaton_kafka_requests_total").map { |labels| labels["broker"] }.grep(/\A\d+\z/)
      metrics if numbers.any? { |number| metrics.value("chaton_kafka_round_trips_total", broker: number).positive? }
    end
    brokers = found.labels("chaton_kafka_requests_total").map { |labels| labels["broker"] }
    number = brokers.grep(/\A\d+\z/).first
    values = %w[requests_total connects_total round_trip_time_seconds_total].map do |name|
      found.value("chaton_kafka_#{name}", broker: number)
    end
    assert(values.all?(&:positive?), values.inspect)
    assert_empty brokers.grep_v(/\A(\d+|bootstrap|coordinator)\z/), "no address is told"
    assert_equal 0, server.stop(timeout_s: 60)
  end
end
