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
        Option.in(:streams, :mechanism, :log, Types::Word.new("a name such as PLAIN", pattern: /\A[\w-]+\z/), nil,
                  "SASL mechanism for Kafka: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
                  default_text: "PLAIN with a username", engine: :log),
        Option.in(:streams, :kafka, :log, Types::Properties.new, nil,
                  "Properties of librdkafka for all its clients; an unknown one is refused at the start.",
                  default_text: "none"),
        Option.in(:streams, :producer_kafka, :log, Types::Properties.new, nil, "The same for the producer only.",
                  default_text: "none"),
        Option.in(:streams, :consumer_kafka, :log, Types::Properties.new, nil, "The same for consumers only.",
                  default_text: "none"),
        Option.in(:streams, :produce_buffer_bytes, :log, Types::Bytes.new((64 << 10)..(1 << 40)), 64 << 20,
                  "Bytes of records that wait to be written; above it Chaton.produce waits. Before workers are " \
                  "forked as many are kept for the first worker.", also: %i[produce_buffer], engine: :log),
        Option.seconds(:streams, :delivery_timeout_s, :log, 0.1..86_400.0, 120.0,
                       "Time for a record to become durable; after it the record has failed, as its receipt tells.",
                       engine: :log),
        Option.in(:streams, :linger_ms, :log, Types::Number.new(0.0..10_000.0, unit: "milliseconds"), 5.0,
                  "How long records are gathered before they are written together.", also: %i[linger], engine: :log),
        Option.in(:streams, :compression, :log, Types::OneOf.new(:none, :gzip, :snappy, :lz4, :zstd), :none,
                  "Kafka: how records are compressed.", engine: :log),
        Option.in(:streams, :retention_bytes, :log, Types::BytesOr.new((64 << 10)..(1 << 50), none: true), nil,
                  "On this machine: size of a partition above which its oldest records are deleted.", engine: :log),
        Option.in(:streams, :retention_s, :log, Types::Number.new(1.0..3_153_600_000.0, unit: "seconds", off: true),
                  0.0, "On this machine: age at which records are deleted.", also: %i[retention], engine: :log)
      ].freeze

      # How records are read.
      READING = [
        Option.seconds(:streams, :session_timeout_s, :streams, 1.0..1800.0, 45.0,
                       "A member of a group without a heartbeat for this long is dead: others get its partitions.",
                       engine: %i[streams group]),
        Option.seconds(:streams, :max_poll_interval_s, :streams, 1.0..86_400.0, 300.0,
                       "Half of it is the time for a running batch to end when its partition goes to another member. " \
                       "A consumer that takes longer loses only its commit. A batch that runs for this long is " \
                       "logged.", engine: %i[streams group]),
        Option.in(:streams, :read_committed, :streams, Types::Switch.new, true,
                  "Read only records of committed transactions.", engine: %i[streams group]),
        Option.in(:streams, :static_membership, :streams, Types::Switch.new, false,
                  "Each worker has a permanent name in its groups (host, tag and number), so that a restart within " \
                  "session_timeout_s moves no partitions.")
      ].freeze

      STREAMS = [*READING, *LOG].freeze
    end
  end
end
