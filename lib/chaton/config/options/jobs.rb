# frozen_string_literal: true

require_relative "../cron_line"
require_relative "../types/processes"
require_relative "../option"
require_relative "../queue_selection"
require_relative "../sidekiq_format"
require_relative "../store_address"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # How the definitions below are shortened.
      module JobsShort
        # @return [Array(Float, Float)] a time limit of a connection
        LIMIT = 0.1..300.0

        # @return [Option] inside `jobs { }`
        def self.jobs(name, group, type, default, says, **rest)
          Option.new(name: name, group: group, scope: :jobs, type: type, default: default, says: says, **rest)
        end

        # @return [Option] seconds inside `jobs { }`, also without the unit in its name
        def self.time(name, group, range, default, says, **rest)
          jobs(name, group, Types::Number.new(range, unit: "seconds"), default, says,
               also: [name.to_s.delete_suffix("_s").to_sym], **rest)
        end
      end
      private_constant :JobsShort

      # Where jobs live.
      STORE = [
        JobsShort.jobs(:store, :store, Types::StoreUrl.new, "sqlite://storage/chaton.db",
                       "Where jobs live. Where Sidekiq's file is read, REDIS_URL too.",
                       env: %w[CHATON_STORE], flags: %w[--store], placeholder: "URL"),
        JobsShort.jobs(:username, :store, Types::Word.new, nil, "User for Redis, before that of the address."),
        JobsShort.jobs(:password, :store, Types::Secret.new, nil,
                       "Password for Redis, before that of the address; it is never printed.",
                       env: %w[CHATON_STORE_PASSWORD]),
        JobsShort.jobs(:tls_ca_file, :store, Types::Path.new(none: true), nil,
                       "PEM file of the authorities that may sign the certificate of rediss://; none: the system's."),
        JobsShort.time(:connect_timeout_s, :store, JobsShort::LIMIT, 5.0, "Time to make a connection to Redis."),
        JobsShort.time(:answer_timeout_s, :store, JobsShort::LIMIT, 5.0, "Time for one answer of Redis."),
        JobsShort.jobs(:durable, :store, Types::Switch.new, true,
                       "SQLite: an enqueued job has reached the disk; off is faster, and a power failure may lose " \
                       "the last ones."),
        JobsShort.time(:lock_timeout_s, :store, 0.0..300.0, 5.0,
                       "SQLite: the longest wait for another process that writes."),
        JobsShort.jobs(:format, :store, Types::Number.new(6..8), ->(settings) { SidekiqFormat.format(settings[:root]) },
                       "Generation of Sidekiq whose format is written; all are read.",
                       default_text: "that of the bundle's sidekiq gem, else 7"),
        JobsShort.jobs(:dead_max, :store, Types::Number.new(1..10_000_000), 10_000, "Jobs kept in the dead set."),
        JobsShort.time(:dead_age_s, :store, 1.0..315_360_000.0, 15_552_000.0, "How long they are kept.")
      ].freeze

      # Which jobs are taken, and by whom.
      TAKING = [
        JobsShort.jobs(:queues, :jobs, Types::QueueList.new, nil, "QueueSelection that are worked off, and in which order.",
                       default_text: "\"default\""),
        JobsShort.jobs(:load, :jobs, Types::Words.new("paths"), nil,
                       "Files and directories of job classes to load at boot; with Rails its own loader knows them.",
                       default_text: "none"),
        JobsShort.jobs(:cron, :jobs, Types::CronSchedule.new, nil,
                       "A job by the clock: cron \"nightly\", \"0 3 * * *\", \"CleanUp\", zone: \"Europe/Berlin\", " \
                       "args: [], queue: \"low\"; each name once. One process enqueues each tick.",
                       default_text: "none"),
        JobsShort.jobs(:jobs_threads, :jobs, Types::ThreadRange.new, nil,
                       "Threads of a worker that runs nothing but jobs.",
                       also: %i[threads], default_text: "as threads outside"),
        JobsShort.jobs(:jobs_shutdown_timeout_s, :jobs, Types::Number.new(0.0..86_400.0, unit: "seconds"), nil,
                       "What running jobs of such a worker are left when it is told to stop; then they go back to " \
                       "the front of their queues.",
                       also: %i[shutdown_timeout_s shutdown_timeout], default_text: "as shutdown_timeout_s outside"),
        JobsShort.jobs(:retries_max, :jobs, Types::Number.new(0..1000), 25,
                       "Retries of a job that fails and names no number itself."),
        JobsShort.jobs(:labels, :jobs, Types::Words.new("words"), nil, "Words shown with the process in Sidekiq's UI.",
                       default_text: "none"),
        JobsShort.jobs(:sidekiq_file, :jobs, Types::Path.new(none: true), "config/sidekiq.yml",
                       "Sidekiq's file, read where it exists for what is set nowhere else: concurrency, queues, " \
                       "timeout, max_retries, labels.", also: %i[sidekiq_yml])
      ].freeze

      # How they are taken.
      PACE = [
        JobsShort.time(:prefetch_s, :jobs, 0.0..10.0, 0.005,
                       "Beyond the free threads, as many jobs are taken from the store as will start within this " \
                       "time."),
        JobsShort.jobs(:prefetch_max, :jobs, Types::Number.new(1..1000), 1000,
                       "Jobs of one process that are taken and have not started."),
        JobsShort.time(:ack_delay_s, :jobs, 0.0..1.0, 0.002,
                       "The longest an ended job waits to be acknowledged together with others."),
        JobsShort.time(:beat_s, :jobs, 0.1..60.0, 5.0, "Between two signs of life in the store."),
        JobsShort.time(:lease_s, :jobs, 1.0..86_400.0, 60.0,
                       "A process without a sign of life for this long is dead: another one returns its jobs."),
        JobsShort.time(:limit_retry_s, :jobs, 0.01..60.0, 0.25,
                       "A job whose concurrency limit is reached asks again after this time.")
      ].freeze

      # All of them.
      JOBS = [*TAKING, *PACE, *STORE].freeze
    end
  end
end
