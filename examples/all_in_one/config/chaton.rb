# frozen_string_literal: true

# Web requests in one process, background jobs in another, so that neither can hold the other up. The jobs live in a
# SQLite file; a Redis server would be `store "redis://127.0.0.1:6379/0"`, and nothing else would change.
workers web: 1, jobs: 1

jobs do
  store "sqlite://storage/chaton.db"
  queues "default"
  load "app/jobs"
end
