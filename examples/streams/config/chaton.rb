# frozen_string_literal: true

# Web requests in one process, consumers in another. The log is a directory of this machine; with Kafka it would be
# `broker "kafka://127.0.0.1:9092"`, and nothing else would change.
workers web: 1, streams: 1

streams do
  broker "log://storage/streams"
  load "app/consumers"
  topic "visits", "VisitsConsumer", group: "counts", deserializer: :json, partitions: 4, dead_letter: "visits.dead"
end
