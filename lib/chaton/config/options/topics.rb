# frozen_string_literal: true

require_relative "../option"
require_relative "../types/streams"
require_relative "../types/text"

module Chaton
  module Config
    module Options
      # How the definitions below are shortened.
      module TopicShort
        # @return [Option] a keyword of `topic` inside `streams { }`
        def self.topic(key, type, default, says, **rest)
          Option.new(name: :"topic_#{key}", key: key, group: :topic, scope: :topic, type: type, default: default,
                     says: says, **rest)
        end

        # @return [Types::Number]
        def self.seconds(range) = Types::Number.new(range, unit: "seconds")
      end
      private_constant :TopicShort

      # How a topic is read.
      CONSUMING = [
        TopicShort.topic(:group, Types::Word.new("a name"), nil, "The consumer group.", default_text: "the tag"),
        TopicShort.topic(:batch, Types::Number.new(1..1_000_000), 500, "Records of one batch, at most."),
        TopicShort.topic(:batch_bytes, Types::Bytes.new(1..(1 << 31)), 1 << 20,
                         "Bytes of one batch, at most; a single record may be larger."),
        TopicShort.topic(:concurrency, Types::Number.new(1..1000), 1,
                         "Batches of one partition that run at the same time, with order: :key."),
        TopicShort.topic(:order, Types::OneOf.new(:partition, :key), nil,
                         "What keeps its order: all of a partition, or the records of one key.",
                         default_text: "partition; with concurrency above 1 key"),
        TopicShort.topic(:deserializer, Types::Deserializer.new, nil, "What makes a value of a record's bytes.",
                         default_text: "raw"),
        TopicShort.topic(:start, Types::OneOf.new(:earliest, :latest), :earliest,
                         "Where a group begins that has committed nothing yet."),
        TopicShort.topic(:retries, Types::Number.new(0..1_000_000), nil,
                         "How often what failed is tried again before it goes to dead_letter.",
                         default_text: "5 with dead_letter; without it for ever"),
        TopicShort.topic(:backoff, TopicShort.seconds(0.0..86_400.0), 1.0,
                         "Seconds before the first retry; it doubles with each failure in a row. The partition " \
                         "waits, others go on."),
        TopicShort.topic(:backoff_max, TopicShort.seconds(0.0..86_400.0), 60.0, "The longest such pause."),
        TopicShort.topic(:dead_letter, Types::TopicName.new, nil,
                         "The topic for records that failed for good, with the cause in their headers."),
        TopicShort.topic(:delay, TopicShort.seconds(0.0..31_536_000.0), 0.0,
                         "Seconds after its timestamp before a record is handed out."),
        TopicShort.topic(:expires, TopicShort.seconds(0.0..3_153_600_000.0), 0.0,
                         "Seconds after its timestamp from which a record is left out; 0: never."),
        TopicShort.topic(:throttle, Types::ThrottleRate.new, nil, "Records of one partition in so many seconds, at most."),
        TopicShort.topic(:offsets, Types::OneOf.new(:auto, :manual), :auto,
                         "What is done: whatever consume has returned from, or only what it marks."),
        TopicShort.topic(:transactional, Types::Switch.new, false,
                         "The consumer writes and commits in one transaction."),
        TopicShort.topic(:protocol, Types::OneOf.new(:classic, :consumer), :classic,
                         "What keeps the group together; consumer is KIP-848, which Kafka 4 has.")
      ].freeze

      # How a topic shall be, for `chaton streams plan` and `apply`.
      DECLARING = [
        TopicShort.topic(:partitions, Types::Number.new(1..100_000), nil, "How many partitions it shall have.",
                         default_text: "the log's own default"),
        TopicShort.topic(:replication, Types::Number.new(1..1000), nil, "How many copies there shall be of each.",
                         default_text: "the log's own default"),
        TopicShort.topic(:settings, Types::TopicSettings.new, nil,
                         "What else it shall have: { \"retention.ms\" => 86_400_000 }.", default_text: "none")
      ].freeze

      # All of them.
      TOPICS = [*CONSUMING, *DECLARING].freeze
    end
  end
end
