# frozen_string_literal: true

require "chaton"
require_relative "speaker"

SPEAKER = Speaker.new { |stream, text| Chaton.broadcast("s/#{stream}", text) }

run(lambda do |env|
  path = env["PATH_INFO"]
  return [200, {}, [Process.pid.to_s]] if path == "/"
  return [200, {}, [SPEAKER.say(env["QUERY_STRING"])]] if path == "/say"

  Chaton::EventStream.response(env, path.delete_prefix("/"))
end)
