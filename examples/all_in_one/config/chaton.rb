# frozen_string_literal: true

# Web requests, background jobs and streams run in one process each, so that none delays the others. The jobs are stored
# in a SQLite file and the streams in a directory. To use servers instead, write `store "redis://127.0.0.1:6379/0"` and
# `broker "kafka://127.0.0.1:9092"`; nothing else changes.
workers web: 1, jobs: 1, streams: 1

jobs do
  store "sqlite://storage/chaton.db"
  queues "default"
  load "app/jobs"
end

streams do
  broker "log://storage/streams"
  load "app/consumers"
  retention_bytes "128M" # of each partition, so that a demonstration does not fill the disk
  topic "events", "TallyConsumer", group: "tally", batch: 2_000, deserializer: :json, partitions: 4
end

# Health checks at /live and /ready, numbers for Prometheus at /metrics.
admin { bind ENV.fetch("ADMIN_BIND", "tcp://127.0.0.1:9394") }

# Spans of requests, jobs and records go to an OpenTelemetry collector, if there is one.
traces { sample 1.0 } if ENV["OTEL_EXPORTER_OTLP_ENDPOINT"]
