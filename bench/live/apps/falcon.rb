# frozen_string_literal: true

# Falcon's server without its command line: `falcon.rb PORT`. Each client has a fiber, and a body with a queue.
require "async"
require "async/http/body/writable"
require "async/http/endpoint"
require "falcon/server"
require_relative "speaker"

STREAMS = Hash.new { |all, stream| all[stream] = [] }
SPEAKER = Speaker.new do |stream, text|
  STREAMS[stream.to_s].reject!(&:closed?)
  STREAMS[stream.to_s].each { |body| body.write("data: #{text}\n\n") }
end

app = lambda do |env|
  path = env["PATH_INFO"]
  next [200, {}, [Process.pid.to_s]] if path == "/"
  next [200, {}, [SPEAKER.say(env["QUERY_STRING"])]] if path == "/say"

  body = Async::HTTP::Body::Writable.new
  body.write(":\n\n")
  STREAMS[path.delete_prefix("/s/")] << body
  [200, { "content-type" => "text/event-stream" }, body]
end
endpoint = Async::HTTP::Endpoint.parse("http://127.0.0.1:#{ARGV.fetch(0)}")
Async { Falcon::Server.new(Falcon::Server.middleware(app, cache: false), endpoint).run }
