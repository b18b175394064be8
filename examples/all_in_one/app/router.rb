# frozen_string_literal: true

require "json"
require_relative "answers"
require_relative "clicks"
require_relative "facts"
require_relative "page"
require_relative "reports"

# The demonstration application. It is plain Rack, so that it runs unchanged under any server.
class Router
  TEXT = { "content-type" => "text/plain" }.freeze
  JSON_TYPE = { "content-type" => "application/json", "cache-control" => "no-store" }.freeze
  SLEEP_S_MAX = 10.0
  STREAM_LINES = 100

  def initialize
    @facts = Facts.new
    @reports = Reports.new
    @clicks = Clicks.new
    @answers = Answers.new
  end

  def call(env)
    @facts.count
    case env["PATH_INFO"]
    when "/" then [200, { "content-type" => "text/html; charset=utf-8" }, [Page.new(@facts.server(env)).to_s]]
    when "/hello" then [200, TEXT.dup, ["Hello, world!\n"]]
    when "/sleep" then pause(env)
    when "/stream" then [200, TEXT.dup, Enumerator.new { |out| STREAM_LINES.times { |line| out << "line #{line}\n" } }]
    when "/echo" then [200, { "content-type" => "application/octet-stream" }, [env["rack.input"].read]]
    when "/reports" then @reports.enqueue(env)
    when "/jobs.json" then @reports.counts
    when "/clicks" then @clicks.produce(env)
    when "/streams.json" then @clicks.counts
    when "/status.json" then [200, JSON_TYPE.dup, [JSON.generate(@facts.to_h(env))]]
    else @answers.call(env) || [404, TEXT.dup, ["no such page\n"]]
    end
  end

  private

  # Waits like a database call.
  def pause(env)
    seconds = Rack::Utils.parse_query(env["QUERY_STRING"]).fetch("s", "0.1").to_f.clamp(0.0, SLEEP_S_MAX)
    sleep seconds
    [200, TEXT.dup, ["slept #{seconds} s\n"]]
  end
end
