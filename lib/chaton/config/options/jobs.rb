# frozen_string_literal: true

require_relative "../cron_line"
require_relative "../option"
require_relative "../queue_selection"
require_relative "../sidekiq_format"
require_relative "../store_address"
require_relative "../types/memory"
require_relative "../types/processes"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # The job store.
      STORE = [
        Option.in(:jobs, :store, :store, Types::StoreUrl.new, StoreAddress.method(:default),
                  "Where jobs are stored. If Sidekiq's file is read, REDIS_URL sets it too.",
                  default_text: "sqlite://storage/chaton_ENVIRONMENT.db",
                  env: %w[CHATON_STORE], flags: %w[--store], placeholder: "URL"),
        Option.in(:jobs, :username, :store, Types::Word.new, nil,
                  "User for Redis or PostgreSQL, which overrides that of the address; in streams { } for Kafka (SASL).",
                  engine: %i[jobs store], elsewhere: { streams: { group: :log, engine: :log } }),
        Option.in(:jobs, :password, :store, Types::Secret.new, nil,
                  "Password for the same; it is never printed.",
                  env: %w[CHATON_STORE_PASSWORD], engine: %i[jobs store],
                  elsewhere: { streams: { group: :log, engine: :log, env: %w[CHATON_BROKER_PASSWORD] } }),
        Option.in(:jobs, :sentinel_username, :store, Types::Word.new, nil, "User for the sentinels.",
                  engine: %i[jobs store]),
        Option.in(:jobs, :sentinel_password, :store, Types::Secret.new, nil,
                  "Password for the sentinels, which they do not take from that of Redis. It is never printed.",
                  env: %w[CHATON_STORE_SENTINEL_PASSWORD], engine: %i[jobs store]),
        Option.in(:jobs, :store_listen, :store, Types::Secret.new("an address or \"off\""), nil,
                  "PostgreSQL behind a bouncer: the address of the server itself, on which each process listens for " \
                  "new jobs; off: it looks for them twice a second. It is never printed.",
                  default_text: "the address of store", key: :listen, engine: %i[jobs store]),
        Option.in(:jobs, :tls_ca_file, :store, Types::Path.new(none: true), nil,
                  "PEM file of the authorities that may sign the certificate of rediss://, PostgreSQL or, in " \
                  "streams { }, kafka+ssl://; none: the system's.",
                  engine: %i[jobs store], elsewhere: { streams: { group: :log, engine: :log } }),
        Option.in(:jobs, :tls_cert_file, :store, Types::Path.new(none: true), nil,
                  "PEM file of the certificate that is shown to the server.", engine: %i[jobs store]),
        Option.in(:jobs, :tls_key_file, :store, Types::Path.new(none: true), nil, "PEM file of its key.",
                  engine: %i[jobs store]),
        Option.in(:jobs, :tls_verify, :store, Types::Switch.new, true,
                  "Check the certificate of rediss:// and PostgreSQL; off: the connection is encrypted, but to any " \
                  "server that answers. For hosted servers with certificates of their own; tls_ca_file is safer.",
                  engine: %i[jobs store]),
        Option.seconds(:jobs, :answer_timeout_s, :store, 0.1..300.0, 5.0,
                       "Time for one answer of Redis or PostgreSQL.", engine: %i[jobs store]),
        Option.in(:jobs, :reliable_push, :store, Types::BytesOr.new((64 << 10)..(1 << 30), none: true), nil,
                  "Redis, PostgreSQL: while the server cannot be reached, enqueueing keeps jobs of up to so many " \
                  "bytes in the memory of each process and sends them later in their order; they are lost if the " \
                  "process ends before.", engine: %i[jobs store]),
        Option.in(:jobs, :durable, :store, Types::Switch.new, true,
                  "SQLite: an enqueued job is on disk before enqueueing returns, and in streams { } a record before " \
                  "it counts as written; off is faster, but a power failure may lose the last ones.",
                  engine: %i[jobs store], elsewhere: { streams: { group: :log, engine: :log } }),
        Option.in(:jobs, :format, :store, Types::Number.new(6..8), ->(settings) { SidekiqFormat.of(settings[:root]) },
                  "Sidekiq version whose format is written; all are read.",
                  default_text: "that of the bundle's sidekiq gem, else 7", engine: %i[jobs store]),
        Option.in(:jobs, :dead_max, :store, Types::Number.new(1..10_000_000), 10_000, "Jobs kept in the dead set.",
                  engine: %i[jobs store]),
        Option.seconds(:jobs, :dead_age_s, :store, 1.0..315_360_000.0, 15_552_000.0, "How long they are kept.",
                       engine: %i[jobs store])
      ].freeze

      # Which jobs run, and where.
      TAKING = [
        Option.in(:jobs, :queues, :jobs, Types::QueueList.new, nil, "Queues to work on, and in which order.",
                  default_text: "\"default\""),
        Option.in(:jobs, :load, :jobs, Types::Words.new("paths"), nil,
                  "Files and directories of classes of jobs, or of consumers, to load at boot. With Rails its own " \
                  "loader finds those in app/.", default_text: "none", elsewhere: { streams: { group: :streams } }),
        Option.in(:jobs, :cron, :jobs, Types::CronSchedule.new, nil,
                  "A periodic job: cron \"nightly\", \"0 3 * * *\", \"CleanUp\", zone: \"Europe/Berlin\", " \
                  "args: [], queue: \"low\"; each name once. One process enqueues each tick.", default_text: "none"),
        Option.seconds(:jobs, :catch_up_s, :jobs, 0.0..43_200.0, 600.0,
                       "A tick of cron that was missed by at most this time while no process ran is enqueued once " \
                       "after boot, but not one from before the entry was added or changed; 0: never.",
                       development: 0.0, engine: :jobs),
        Option.in(:jobs, :retries_max, :jobs, Types::Number.new(0..1000), nil,
                  "Retries of a job that fails, unless its class sets a number.",
                  default_text: "what Sidekiq.configure_server sets as max_retries, else 25"),
        Option.in(:jobs, :log_jobs_per_s, :jobs, Types::Number.new(1..100_000, off: true), 1000,
                  "Each job that ended has a line in the log: at most so many a second for jobs that ran well, and " \
                  "as many for those that failed; a line a second counts the others. 0: only failed jobs, but all."),
        Option.in(:jobs, :labels, :jobs, Types::Words.new("words"), nil,
                  "Words shown with the process in Sidekiq's UI.", default_text: "none"),
        Option.in(:jobs, :sidekiq_file, :jobs, Types::Path.new(none: true), "config/sidekiq.yml",
                  "Sidekiq's file. If it exists, it sets what is set nowhere else: concurrency, queues, timeout, " \
                  "max_retries, labels.", also: %i[sidekiq_yml])
      ].freeze

      # How jobs are taken and acknowledged.
      PACE = [
        Option.seconds(:jobs, :lease_s, :jobs, 1.0..86_400.0, nil,
                       "A process without a heartbeat for this long is dead: another one returns its jobs.",
                       default_text: "15 with Redis and PostgreSQL, 60 with SQLite", engine: %i[jobs store])
      ].freeze

      JOBS = [*TAKING, *PACE, *STORE].freeze
    end
  end
end
