# frozen_string_literal: true

require_relative "queues"

# A body with `call`, which Puma has from version 6 on; before that, the same by `rack.hijack`. It holds its thread.
BODIES = Puma::Const::PUMA_VERSION.to_i >= 6

run(lambda do |env|
  path = env["PATH_INFO"]
  return [200, {}, [Process.pid.to_s]] if path == "/"
  return [200, {}, [SPEAKER.say(env["QUERY_STRING"])]] if path == "/say"

  body = ->(out) { feed(path.delete_prefix("/s/"), out) }
  headers = { "content-type" => "text/event-stream" }
  BODIES ? [200, headers, body] : [200, { **headers, "rack.hijack" => body }, []]
end)
