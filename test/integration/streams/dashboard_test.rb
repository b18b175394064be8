# frozen_string_literal: true

require "test_helper"
require "support/admin_client"
require "support/streams_test_case"

# The partitions that the dashboard shows.
class StreamsDashboardTest < Minitest::Test
  include StreamsTest

  TOKEN = "0123456789abcdef"
  # It stays behind from the third record on, until it is told to go on.
  SLOW = <<~RUBY
    class EventsConsumer < Chaton::Consumer
      def consume(batch)
        batch.each { |record| sleep 0.01 until record.offset < 2 || File.exist?("go") }
      end
    end
  RUBY

  def kind = :local

  def test_partitions_have_states_offsets_and_lag_and_those_behind_come_first
    create(partitions: 3)
    config = "admin { bind \"unix://admin.sock\"; token #{TOKEN.dump} }"
    server = boot_streams(SLOW, topics: route(batch: 2), config: config)
    server.streams_command("produce", topic, "--partition", "1", input: "a\nb\nc\nd\ne\n")
    shown(server, "one is behind") { |all| behind?(all.first) && all.size == 3 }
    server.write("go", "")
    shown(server, "all are done") { |all| all.first.values_at("partition", "committed", "lag") == [1, 5, 0] }
    assert_equal 0, server.stop(timeout_s: WAIT_S)
  end

  private

  # Its first batch is done, the second one runs.
  def behind?(one)
    one.values_at("topic", "group", "partition", "committed", "end", "lag") == [topic, group, 1, 2, 5, 3]
  end

  def shown(server, what)
    client = AdminClient.new(server.path("admin.sock"))
    server.eventually(what, timeout_s: WAIT_S) do
      answer = client.get("/dashboard.json", headers: { "Authorization" => "Bearer #{TOKEN}" })
      found = answer.json["workers"].first["partitions"]
      found && yield(found)
    end
  end
end
