# frozen_string_literal: true

require_relative "speaker"

# A queue for each client, from which its own thread takes what it sends.
QUEUES = Hash.new { |all, stream| all[stream] = [] }
LOCK = Mutex.new
SPEAKER = Speaker.new do |stream, text|
  LOCK.synchronize { QUEUES[stream.to_s].dup }.each { |queue| queue << "data: #{text}\n\n" }
end

# Sends what is said, until the client has gone.
#
# @param stream [String]
# @param out [#write]
def feed(stream, out)
  queue = Queue.new
  LOCK.synchronize { QUEUES[stream] << queue }
  out.write(":\n\n")
  loop { out.write(queue.pop) }
rescue SystemCallError, IOError
  nil
ensure
  LOCK.synchronize { QUEUES[stream].delete(queue) }
  out.close
end
