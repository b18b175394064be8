# frozen_string_literal: true

require_relative "../option"
require_relative "../types/streams"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # A pause between two attempts.
      BACKOFF = Types::Number.new(0.0..86_400.0, unit: "seconds")

      # How a topic is read.
      CONSUMING = [
        Option.keyword(:topic, :group, Types::Word.new("a name"), nil, "The consumer group.", default_text: "the tag"),
        Option.keyword(:topic, :batch, Types::Number.new(1..1_000_000), 500, "Records of one batch, at most.",
                       engine: %i[streams route]),
        Option.keyword(:topic, :batch_bytes, Types::Bytes.new(1..(1 << 31)), 1 << 20,
                       "Bytes of one batch, at most; a single record may be larger.", engine: %i[streams route]),
        Option.keyword(:topic, :concurrency, Types::Number.new(1..1000), 1,
                       "Batches of one partition that run at the same time, with order: :key.",
                       engine: %i[streams route]),
        Option.keyword(:topic, :order, Types::OneOf.new(:partition, :key), nil,
                       "Which records run in order: all of a partition, or those of one key.",
                       default_text: "partition; with concurrency above 1 key"),
        Option.keyword(:topic, :deserializer, Types::Deserializer.new, nil, "Makes the value from a record's bytes.",
                       default_text: "raw"),
        Option.keyword(:topic, :start, Types::OneOf.new(:earliest, :latest), :earliest,
                       "Where a group begins that has committed nothing yet."),
        Option.keyword(:topic, :retries, Types::Number.new(0..1_000_000), nil,
                       "How often a failed batch is tried again before its record goes to dead_letter.",
                       default_text: "5 with dead_letter; without it for ever"),
        Option.keyword(:topic, :backoff, BACKOFF, 1.0,
                       "Seconds before the first retry; the pause doubles with each failure in a row. The partition " \
                       "waits, others go on.", engine: %i[streams route]),
        Option.keyword(:topic, :backoff_max, BACKOFF, 60.0, "The longest such pause."),
        Option.keyword(:topic, :dead_letter, Types::TopicName.new, nil,
                       "The topic for records that failed for good, with the cause in their headers.",
                       engine: %i[streams route]),
        Option.keyword(:topic, :delay, Types::Number.new(0.0..31_536_000.0, unit: "seconds"), 0.0,
                       "Seconds after its timestamp before a record is delivered.", engine: %i[streams route]),
        Option.keyword(:topic, :expires, Types::Number.new(0.0..3_153_600_000.0, unit: "seconds"), 0.0,
                       "Seconds after its timestamp from which a record is skipped; 0: never.",
                       engine: %i[streams route]),
        Option.keyword(:topic, :throttle, Types::ThrottleRate.new, nil,
                       "Records of one partition in so many seconds, at most."),
        Option.keyword(:topic, :on_gap, Types::OneOf.new(:warn, :stop), :warn,
                       "When records are gone before the group has read them, removed by retention or lost: warn and " \
                       "continue behind them, or stop the partition until the group's offset is set.",
                       engine: %i[streams route]),
        Option.keyword(:topic, :offsets, Types::OneOf.new(:auto, :manual), :auto,
                       "What is committed: everything from which consume has returned, or only what it marks."),
        Option.keyword(:topic, :transactional, Types::Switch.new, false,
                       "The consumer writes and commits in one transaction.", engine: %i[streams route]),
        Option.keyword(:topic, :wait_for_deliveries, Types::Switch.new, false,
                       "A batch is done only when the records that its consumer has produced are durable; one that " \
                       "fails makes the batch fail."),
        Option.keyword(:topic, :protocol, Types::OneOf.new(:classic, :consumer), :classic,
                       "The protocol of the group; consumer is KIP-848, which Kafka 4 has.")
      ].freeze

      # The topic that `chaton streams plan` and `apply` create.
      DECLARING = [
        Option.keyword(:topic, :partitions, Types::Number.new(1..100_000), nil, "Number of its partitions.",
                       default_text: "the log's own default"),
        Option.keyword(:topic, :replication, Types::Number.new(1..1000), nil, "Number of copies of each partition.",
                       default_text: "the log's own default"),
        Option.keyword(:topic, :settings, Types::TopicSettings.new, nil,
                       "Its further settings: { \"retention.ms\" => 86_400_000 }.", default_text: "none")
      ].freeze

      TOPICS = [*CONSUMING, *DECLARING].freeze
    end
  end
end
