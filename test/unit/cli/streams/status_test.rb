# frozen_string_literal: true

require_relative "streams_case"
require "chaton/cli/status"
require "chaton/cli/status_report"

# What `chaton status` says of streams.
class CLIStreamsStatusTest < CLIStreamsCase
  RUNNING = { "pid" => 1, "state" => "running", "uptime_s" => 1, "workers" => [{ "roles" => %w[streams] }] }.freeze
  # As the engine of a process without workers gives it.
  STATS = { "totals" => { "records" => 12_345 },
            "groups" => [{ "name" => "app", "trouble" => nil },
                         { "name" => "log", "trouble" => "nobody answers" }] }.freeze

  def test_how_far_groups_have_come
    configure('topic "events", "EventsConsumer", group: "app"; topic "orders", "OrdersConsumer", group: "app"')
    @log.topic("events", partitions: 2, records: Array.new(1_500) { ["v", nil, 1] })
    @log.commit("app", "events", [0, 3])
    found = added(RUNNING)
    assert_equal [{ "name" => "app", "topics" => ["events"], "missing_topics" => ["orders"], "partitions" => 2,
                    "committed" => 3, "lag" => 1_497 }], found["streams"]["groups"]
    assert_includes text(found), "group app at #{@log.address}: events, 2 partitions, lag 1,497; " \
                                 "waits for orders, which does not exist yet"
  end

  def test_servers_without_streams_are_left_alone
    status = { "workers" => [{ "roles" => %w[web jobs] }] }
    assert_same status, added(status)
    configure("password 1") # refused
    assert_match(/password must be a word/, added(RUNNING)["streams"]["error"])
  end

  def test_a_log_that_is_away
    configure('topic "events", "EventsConsumer"')
    @logs.clear
    assert_match(/^streams at #{@log.address}: nobody answers at/, text(added(RUNNING)))
  end

  def test_the_engine_of_a_single_process
    shown = text({ **RUNNING, "workers" => nil, "service" => { "streams" => STATS } })
    assert_match(/^streams: records 12,345\n  log: nobody answers$/, shown)
  end

  private

  def text(status) = Chaton::CLI::StatusReport.new(status).to_s
  def added(status) = with_logs { Chaton::CLI::StreamsStatus.add(status, {}) }
end
