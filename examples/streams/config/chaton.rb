# frozen_string_literal: true

# Web requests run in one process, and consumers in another. The log is a directory; to use Kafka instead, write
# `broker "kafka://127.0.0.1:9092"`; nothing else changes.
workers web: 1, streams: 1

streams do
  broker "log://storage/streams"
  load "app/consumers"
  topic "visits", "VisitsConsumer", group: "counts", deserializer: :json, partitions: 4, dead_letter: "visits.dead"
end
