# frozen_string_literal: true

require_relative "../types/memory"
require_relative "../broker_address"
require_relative "../types/processes"
require_relative "../option"
require_relative "../store_address"
require_relative "../types/streams"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # How the definitions below are shortened.
      module StreamsShort
        # @return [Option] inside `streams { }`
        def self.streams(name, group, type, default, says, **rest)
          Option.new(name: name, group: group, scope: :streams, type: type, default: default, says: says, **rest)
        end

        # @return [Option] seconds inside `streams { }`, also without the unit in its name
        def self.time(name, group, range, default, says, also: [], **rest)
          streams(name, group, Types::Number.new(range, unit: "seconds"), default, says,
                  also: [*also, name.to_s.delete_suffix("_s").to_sym], **rest)
        end

        # @return [Option] bytes inside `streams { }`, also without the unit in its name
        def self.bytes(name, group, range, default, says, **rest)
          streams(name, group, Types::Bytes.new(range), default, says,
                  also: [name.to_s.delete_suffix("_bytes").to_sym], **rest)
        end
      end
      private_constant :StreamsShort

      # Where records live, and how they are written.
      LOG = [
        StreamsShort.streams(:broker, :log, Types::BrokerUrl.new, "log://storage/streams", "Where records live.",
                             env: %w[CHATON_BROKER], flags: %w[--broker], placeholder: "URL"),
        StreamsShort.streams(:streams_username, :log, Types::Word.new, nil, "User for Kafka (SASL).",
                             also: %i[username]),
        StreamsShort.streams(:streams_password, :log, Types::Secret.new, nil,
                             "Password for Kafka (SASL); it is never printed.",
                             also: %i[password], env: %w[CHATON_BROKER_PASSWORD]),
        StreamsShort.streams(:mechanism, :log, Types::Word.new("a name such as PLAIN", pattern: /\A[\w-]+\z/), nil,
                             "How Kafka is told who we are (SASL): PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
                             default_text: "PLAIN where there is a username"),
        StreamsShort.streams(:streams_tls_ca_file, :log, Types::Path.new(none: true), nil,
                             "PEM file of the authorities that may sign the certificate of kafka+ssl://; none: the " \
                             "system's.", also: %i[tls_ca_file]),
        StreamsShort.streams(:kafka, :log, Types::Properties.new, nil,
                             "Properties of librdkafka for whatever speaks to Kafka; an unknown one is refused at " \
                             "the start.", default_text: "none"),
        StreamsShort.streams(:producer_kafka, :log, Types::Properties.new, nil, "The same for the producer alone.",
                             default_text: "none"),
        StreamsShort.streams(:consumer_kafka, :log, Types::Properties.new, nil, "The same for consumers alone.",
                             default_text: "none"),
        StreamsShort.streams(:client_id, :log, Types::Word.new("a name", pattern: /\A\S+\z/), "chaton",
                             "How this program calls itself towards Kafka."),
        StreamsShort.time(:streams_answer_timeout_s, :log, 0.1..300.0, 10.0,
                          "Time a call has that waits for an answer of the log.",
                          also: %i[answer_timeout_s answer_timeout]),
        StreamsShort.bytes(:produce_buffer_bytes, :log, (64 << 10)..(1 << 40), 64 << 20,
                           "Bytes of records that wait to be written; above it Chaton.produce waits. Before workers " \
                           "are forked as many are kept for the first of them."),
        StreamsShort.streams(:produce_buffer_records, :log, Types::Number.new(1..10_000_000), 100_000,
                             "The same in records."),
        StreamsShort.time(:produce_timeout_s, :log, 0.0..3600.0, 5.0,
                          "How long Chaton.produce waits for room; then it raises BufferFull."),
        StreamsShort.time(:delivery_timeout_s, :log, 0.1..86_400.0, 120.0,
                          "Time a record has to become durable; then it has failed, and its receipt says so."),
        StreamsShort.time(:flush_timeout_s, :log, 0.0..3600.0, 3.0,
                          "The longest a process that ends waits for records that are not written yet."),
        StreamsShort.streams(:linger_ms, :log, Types::Number.new(0.0..10_000.0, unit: "milliseconds"), 5.0,
                             "How long records are gathered before they are written together.", also: %i[linger]),
        StreamsShort.streams(:compression, :log, Types::OneOf.new(:none, :gzip, :snappy, :lz4, :zstd), :none,
                             "Kafka: how records are compressed."),
        StreamsShort.streams(:streams_durable, :log, Types::Switch.new, true,
                             "log://: a record is written when it has reached the disk; off is faster, and a power " \
                             "failure may lose the last ones.", also: %i[durable]),
        StreamsShort.streams(:log_partitions, :log, Types::Number.new(1..10_000), 4,
                             "log://: partitions of a topic that its first record makes.", also: %i[partitions]),
        StreamsShort.bytes(:segment_bytes, :log, (64 << 10)..(1 << 31), 64 << 20,
                           "log://: size at which a file is full and the next one is begun."),
        StreamsShort.streams(:retention_bytes, :log, Types::BytesOr.new((64 << 10)..(1 << 50), none: true), nil,
                             "log://: size of a partition above which its oldest files go."),
        StreamsShort.streams(:retention_s, :log, Types::Number.new(1.0..3_153_600_000.0, unit: "seconds", off: true),
                             0.0, "log://: age at which a file of records goes.", also: %i[retention])
      ].freeze

      # How records are read.
      READING = [
        StreamsShort.streams(:streams_load, :streams, Types::Words.new("paths"), nil,
                             "Files and directories of consumer classes to load at boot; with Rails its own loader " \
                             "knows those in app/consumers.", also: %i[load], default_text: "none"),
        StreamsShort.streams(:streams_threads, :streams, Types::ThreadRange.new, nil,
                             "Threads of a worker that does nothing but streams.",
                             also: %i[threads], default_text: "as threads outside"),
        StreamsShort.streams(:streams_shutdown_timeout_s, :streams, Types::Number.new(0.0..86_400.0, unit: "seconds"),
                             nil,
                             "What running batches of such a worker are left when it is told to stop; what is not " \
                             "done then is read again.",
                             also: %i[shutdown_timeout_s shutdown_timeout],
                             default_text: "as shutdown_timeout_s outside"),
        StreamsShort.bytes(:buffer_bytes, :streams, (64 << 10)..(1 << 40), 8 << 20,
                           "Bytes of a partition that are read ahead of its consumer."),
        StreamsShort.streams(:ready_batches, :streams, Types::Number.new(1..1000), 2,
                             "Batches of a partition that are made ready ahead."),
        StreamsShort.streams(:commit_interval_ms, :streams, Types::Number.new(1..60_000, unit: "milliseconds"), 100,
                             "The longest that what is done waits to be committed."),
        StreamsShort.time(:session_timeout_s, :streams, 1.0..1800.0, 45.0,
                          "A member of a group that is not heard of for this long is dead: others get its " \
                          "partitions."),
        StreamsShort.time(:max_poll_interval_s, :streams, 1.0..86_400.0, 300.0,
                          "Half of it is what a running batch has to end when its partition goes to another member. " \
                          "A consumer may take longer than that: only its commit is lost then."),
        StreamsShort.time(:group_retry_max_s, :streams, 0.1..3600.0, 30.0,
                          "The longest pause before a group that cannot be joined is tried again."),
        StreamsShort.streams(:read_committed, :streams, Types::Switch.new, true,
                             "Read only what committed transactions have written."),
        StreamsShort.streams(:static_membership, :streams, Types::Switch.new, false,
                             "Each worker has a lasting name in its groups (host, tag and number), so that a restart " \
                             "within session_timeout_s moves no partitions.")
      ].freeze

      # All of them.
      STREAMS = [*READING, *LOG].freeze
    end
  end
end
