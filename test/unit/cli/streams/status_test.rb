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
    topics = %w[app other].map { |group| { "group" => group, "topic" => "events", "paused" => 1 } }
    found = added({ **RUNNING, "topics" => topics })
    assert_equal [{ "name" => "app", "topics" => ["events"], "missing_topics" => ["orders"], "partitions" => 2,
                    "committed" => 3, "lag" => 1_497, "stopped" => [],
                    "paused" => 1 }], found["streams"]["groups"]
    assert_includes text(found), "group app at #{@log.address}: lag 1,497 in 2 partitions, 1 paused, of events; " \
                                 "waits for orders, which does not exist yet"
  end

  def test_a_group_that_has_stopped_at_lost_records
    configure('topic "events", "EventsConsumer", group: "app", on_gap: :stop')
    @log.topic("events", partitions: 1, records: Array.new(100) { ["v", nil, 0] })
    @log.commits["app"][["events", 0]] = [10, "chaton:1::stopped:10-39"]
    found = added(RUNNING)
    group = found["streams"]["groups"].first
    assert_equal [60, [{ "topic" => "events", "partition" => 0, "from" => 10, "to" => 39 }]],
                 group.values_at("lag", "stopped")
    says = "group app has stopped in events/0: records 10 to 39 are gone (on_gap: :stop)"
    assert_includes text(found), says
    shown = good("lag")
    assert_match(/^app +events +0 +10 +100 +60$/, shown)
    assert_includes shown,
                    "#{says}; stop its workers and set its offset: chaton streams seek app events --to 40 --partition 0"
    assert_equal [10, 39], json("lag")["partitions"].first["stopped"]
  end

  def test_servers_without_streams_are_left_alone
    status = { "workers" => [{ "roles" => %w[web] }] }
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
    shown = text({ **RUNNING, "workers" => nil, "workload" => { "streams" => STATS } })
    assert_match(/^streams: records 12,345\n  log: nobody answers$/, shown)
  end

  private

  def text(status) = Chaton::CLI::StatusReport.new(status).to_s
  def added(status) = with_logs { Chaton::CLI::StoresStatus.add(status, {}) }
end
