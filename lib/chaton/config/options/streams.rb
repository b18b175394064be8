# frozen_string_literal: true

require_relative "../broker_address"
require_relative "../option"
require_relative "../types/memory"
require_relative "../types/processes"
require_relative "../types/streams"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # The log of records, and how records are written to it.
      LOG = [
        Option.in(:streams, :broker, :log, Types::BrokerUrl.new, BrokerAddress.method(:default),
                  "Where records are stored. With the file of `store`, jobs and records share a file, and " \
                  "Chaton.transaction writes both.", default_text: "sqlite://storage/chaton_ENVIRONMENT_log.db",
                                                     env: %w[CHATON_BROKER], flags: %w[--broker], placeholder: "URL"),
        Option.in(:streams, :streams_username, :log, Types::Word.new, nil, "User for Kafka (SASL).",
                  also: %i[username]),
        Option.in(:streams, :streams_password, :log, Types::Secret.new, nil,
                  "Password for Kafka (SASL); it is never printed.",
                  also: %i[password], env: %w[CHATON_BROKER_PASSWORD]),
        Option.in(:streams, :mechanism, :log, Types::Word.new("a name such as PLAIN", pattern: /\A[\w-]+\z/), nil,
                  "SASL mechanism for Kafka: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
                  default_text: "PLAIN with a username"),
        Option.in(:streams, :streams_tls_ca_file, :log, Types::Path.new(none: true), nil,
                  "PEM file of the authorities that may sign the certificate of kafka+ssl://; none: the system's.",
                  also: %i[tls_ca_file]),
        Option.in(:streams, :kafka, :log, Types::Properties.new, nil,
                  "Properties of librdkafka for all its clients; an unknown one is refused at the start.",
                  default_text: "none"),
        Option.in(:streams, :producer_kafka, :log, Types::Properties.new, nil, "The same for the producer only.",
                  default_text: "none"),
        Option.in(:streams, :consumer_kafka, :log, Types::Properties.new, nil, "The same for consumers only.",
                  default_text: "none"),
        Option.in(:streams, :client_id, :log, Types::Word.new("a name", pattern: /\A\S+\z/), "chaton",
                  "Name with which this program identifies itself to Kafka."),
        Option.seconds(:streams, :streams_answer_timeout_s, :log, 0.1..300.0, 10.0,
                       "Time for one answer of the log.", also: %i[answer_timeout_s answer_timeout]),
        Option.seconds(:streams, :refused_timeout_s, :log, 0.1..300.0, 5.0,
                       "Kafka: when a broker refuses the credentials or TLS and no other one accepts them within " \
                       "this time, records that wait to be written fail, and groups are joined anew."),
        Option.in(:streams, :produce_buffer_bytes, :log, Types::Bytes.new((64 << 10)..(1 << 40)), 64 << 20,
                  "Bytes of records that wait to be written; above it Chaton.produce waits. Before workers are " \
                  "forked as many are kept for the first worker.", also: %i[produce_buffer]),
        Option.in(:streams, :produce_buffer_records, :log, Types::Number.new(1..10_000_000), 100_000,
                  "Number of records that wait to be written; above it Chaton.produce waits."),
        Option.seconds(:streams, :produce_timeout_s, :log, 0.0..3600.0, 5.0,
                       "How long Chaton.produce waits for room before it raises BufferFull."),
        Option.seconds(:streams, :delivery_timeout_s, :log, 0.1..86_400.0, 120.0,
                       "Time for a record to become durable; after it the record has failed, as its receipt tells."),
        Option.seconds(:streams, :flush_timeout_s, :log, 0.0..3600.0, 3.0,
                       "The longest that an exiting process waits for records that are not written yet."),
        Option.in(:streams, :linger_ms, :log, Types::Number.new(0.0..10_000.0, unit: "milliseconds"), 5.0,
                  "How long records are gathered before they are written together.", also: %i[linger]),
        Option.in(:streams, :compression, :log, Types::OneOf.new(:none, :gzip, :snappy, :lz4, :zstd), :none,
                  "Kafka: how records are compressed."),
        Option.in(:streams, :streams_durable, :log, Types::Switch.new, true,
                  "On this machine: a record is on disk before it counts as written; off is faster, but a power " \
                  "failure may lose the last records.", also: %i[durable]),
        Option.in(:streams, :log_partitions, :log, Types::Number.new(1..10_000), 4,
                  "On this machine: partitions of a topic that is created by its first record.", also: %i[partitions]),
        Option.in(:streams, :retention_bytes, :log, Types::BytesOr.new((64 << 10)..(1 << 50), none: true), nil,
                  "On this machine: size of a partition above which its oldest records are deleted."),
        Option.in(:streams, :retention_s, :log, Types::Number.new(1.0..3_153_600_000.0, unit: "seconds", off: true),
                  0.0, "On this machine: age at which records are deleted.", also: %i[retention])
      ].freeze

      # How records are read.
      READING = [
        Option.in(:streams, :streams_load, :streams, Types::Words.new("paths"), nil,
                  "Files and directories of consumer classes to load at boot. With Rails its own loader finds those " \
                  "in app/consumers.", also: %i[load], default_text: "none"),
        Option.in(:streams, :streams_threads, :streams, Types::ThreadRange.new, nil,
                  "Threads of a worker that runs only streams.",
                  also: %i[threads], default_text: "as threads outside"),
        Option.in(:streams, :streams_shutdown_timeout_s, :streams, Types::Number.new(0.0..86_400.0, unit: "seconds"),
                  nil,
                  "Time for running batches to finish when such a worker is stopped; the records of the others are " \
                  "read again.",
                  also: %i[shutdown_timeout_s shutdown_timeout], default_text: "as shutdown_timeout_s outside"),
        Option.in(:streams, :buffer_bytes, :streams, Types::Bytes.new((64 << 10)..(1 << 40)), 8 << 20,
                  "Bytes of a partition that are read ahead of its consumer.", also: %i[buffer]),
        Option.in(:streams, :ready_batches, :streams, Types::Number.new(1..1000), 2,
                  "Batches of a partition that are prepared ahead."),
        Option.in(:streams, :commit_interval_ms, :streams, Types::Number.new(1..60_000, unit: "milliseconds"), 100,
                  "The longest time between the end of a batch and its commit."),
        Option.seconds(:streams, :session_timeout_s, :streams, 1.0..1800.0, 45.0,
                       "A member of a group without a heartbeat for this long is dead: others get its partitions."),
        Option.seconds(:streams, :max_poll_interval_s, :streams, 1.0..86_400.0, 300.0,
                       "Half of it is the time for a running batch to end when its partition goes to another member. " \
                       "A consumer that takes longer loses only its commit. A batch that runs for this long is " \
                       "logged."),
        Option.seconds(:streams, :group_retry_max_s, :streams, 0.1..3600.0, 30.0,
                       "The longest pause before another attempt to join a group."),
        Option.in(:streams, :read_committed, :streams, Types::Switch.new, true,
                  "Read only records of committed transactions."),
        Option.in(:streams, :static_membership, :streams, Types::Switch.new, false,
                  "Each worker has a permanent name in its groups (host, tag and number), so that a restart within " \
                  "session_timeout_s moves no partitions.")
      ].freeze

      STREAMS = [*READING, *LOG].freeze
    end
  end
end
