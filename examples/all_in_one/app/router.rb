# frozen_string_literal: true

require "json"
require_relative "desk"
require_relative "facts"
require_relative "page"
require_relative "wire"

# The demonstration application. Plain Rack, so that it runs under any server unchanged.
class Router
  TEXT = { "content-type" => "text/plain" }.freeze
  JSON_TYPE = { "content-type" => "application/json", "cache-control" => "no-store" }.freeze
  SLEEP_S_MAX = 10.0
  STREAM_LINES = 100

  def initialize
    @facts = Facts.new
    @desk = Desk.new
    @wire = Wire.new
  end

  def call(env)
    @facts.count
    case env["PATH_INFO"]
    when "/" then [200, { "content-type" => "text/html; charset=utf-8" }, [Page.new(@facts.server(env)).to_s]]
    when "/hello" then [200, TEXT.dup, ["Hello, world!\n"]]
    when "/sleep" then pause(env)
    when "/stream" then [200, TEXT.dup, Enumerator.new { |out| STREAM_LINES.times { |line| out << "line #{line}\n" } }]
    when "/echo" then [200, { "content-type" => "application/octet-stream" }, [env["rack.input"].read]]
    when "/reports" then @desk.order(env)
    when "/jobs.json" then @desk.counts
    when "/clicks" then @wire.click(env)
    when "/streams.json" then @wire.counts
    when "/status.json" then [200, JSON_TYPE.dup, [JSON.generate(@facts.to_h(env))]]
    else [404, TEXT.dup, ["no such page\n"]]
    end
  end

  private

  # What an application does while it waits for a database.
  def pause(env)
    seconds = Rack::Utils.parse_query(env["QUERY_STRING"]).fetch("s", "0.1").to_f.clamp(0.0, SLEEP_S_MAX)
    sleep seconds
    [200, TEXT.dup, ["slept #{seconds} s\n"]]
  end
end
