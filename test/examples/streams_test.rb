# frozen_string_literal: true

require_relative "example_test_case"
require "support/streams_log"

class StreamsExampleTest < ExampleTestCase
  def test_visits_are_counted
    server = boot_whole_example("streams")
    10.times { |number| assert_equal "202", post(server, "/visits/#{number.even? ? "home" : "shop"}", "").code }
    server.eventually("all are counted") { counts(server) == { "home" => 5, "shop" => 5 } }
    server.eventually("all are committed") { lag(server).zero? }
    assert_equal "404", get(server, "/nowhere").code
    assert_match(/  home  \{"page":"home"/, command(server, "streams", "tail", "visits"))
    assert_equal 0, server.stop
  end

  def test_counts_stay_right_when_a_batch_comes_twice
    server = boot_whole_example("streams")
    post(server, "/visits/home", "")
    server.eventually("it is counted") { counts(server) == { "home" => 1 } }
    server.stop
    reset_offsets(server)
    server.start.ready
    post(server, "/visits/home", "")
    server.eventually("the second one is counted, the first one not again") { counts(server) == { "home" => 2 } }
    assert_equal 0, server.stop
  end

  private

  # Resets the committed offsets.
  def reset_offsets(server)
    log = StreamsLog.new("log://#{server.path("storage/streams")}")
    commits = Array.new(4) { |number| { topic: "visits", partition: number, offset: 0 } }
    log.admin(do: "set_committed", group: "counts", commits: commits)
  end

  def counts(server) = JSON.parse(get(server, "/counts").body)
  def lag(server) = JSON.parse(command(server, "streams", "lag", "--json"))["groups"].sum { |group| group["lag"] }
end
