# frozen_string_literal: true

require_relative "speaker"

# What an application writes for itself: a list of sockets for each stream, and one thread that writes to all of them.
STREAMS = Hash.new { |all, stream| all[stream] = [] }
LOCK = Mutex.new
SPEAKER = Speaker.new do |stream, text|
  LOCK.synchronize { STREAMS[stream.to_s].dup }.each do |socket|
    socket.write("data: #{text}\n\n")
  rescue SystemCallError, IOError
    LOCK.synchronize { STREAMS[stream.to_s].delete(socket) }
  end
end

run(lambda do |env|
  path = env["PATH_INFO"]
  return [200, {}, [Process.pid.to_s]] if path == "/"
  return [200, {}, [SPEAKER.say(env["QUERY_STRING"])]] if path == "/say"

  stream = path.delete_prefix("/s/")
  keep = ->(socket) { LOCK.synchronize { STREAMS[stream] << socket } }
  [200, { "content-type" => "text/event-stream", "rack.hijack" => keep }, []]
end)
