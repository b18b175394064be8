# frozen_string_literal: true

require "json"

# Writes events to the stream from requests. Chaton is loaded on first use, so that the other paths run under any
# server.
class Clicks
  JSON_TYPE = { "content-type" => "application/json", "cache-control" => "no-store" }.freeze
  TOPIC = "events"
  GROUP = "tally"
  EVENTS_MAX = 10_000
  PAGES = 16
  TIMEOUT_S = 10.0

  # POST /clicks?n=10 produces ten events. The response to many events waits until they are durable; a single one does
  # not.
  def produce(env)
    count = Rack::Utils.parse_query(env["QUERY_STRING"]).fetch("n", "1").to_i.clamp(1, EVENTS_MAX)
    if count == 1
      page = rand(PAGES)
      streams.produce(TOPIC, event(page), key: key(page))
    else
      streams.produce_many(TOPIC, events(count)).wait(TIMEOUT_S) or return [503, JSON_TYPE.dup, ["{}"]]
    end
    [202, JSON_TYPE.dup, [JSON.generate(produced: count)]]
  end

  # GET /streams.json returns the consumer's progress and its counts.
  def counts
    ends = admin(do: "topic", name: TOPIC)&.fetch("partitions") || []
    done = admin(do: "committed", group: GROUP).select { |one| one["topic"] == TOPIC }.sum { |one| one["offset"] }
    produced = ends.sum { |partition| partition["end"] }
    facts = { produced: produced, consumed: done, lag: produced - done, tally: tally }
    [200, JSON_TYPE.dup, [JSON.generate(facts)]]
  end

  private

  def events(count) = Array.new(count) { |number| { value: event(number % PAGES), key: key(number % PAGES) } }

  def event(page) = { kind: "click", page: page }

  # Clicks of a page keep their order.
  def key(page) = "page #{page}"

  def tally
    streams
    require_relative "consumers/tally_consumer"
    TallyConsumer.all
  end

  def admin(**call) = JSON.parse(streams::Streams.client.native.admin(JSON.generate(call)))

  def streams
    require "chaton"
    Chaton
  end
end
