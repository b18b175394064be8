# frozen_string_literal: true

require_relative "../peers/chaton_streams"
require_relative "../support/bar"
require_relative "../support/case"

module Bench
  module Streams
    # A server or client under measurement. `what` is for the class that measures it, for example a name of a log.
    Contender = Struct.new(:label, :what)

    # All cases of the suite, in the order of the table.
    module Cases
      MILLION = 1_000_000
      # The numbers of the report of 2015 that measured Ruby's consumers of Kafka.
      UP_TO_FIVE = [1, 2, 3, 4, 5].freeze
      # The numbers of the report of 2022 on how consumers wait.
      BATCHES = 10
      NAPS_MS = [0, 1, 100].freeze
      # WaterDrop's published rate.
      WATERDROP = 100_000

      module_function

      # @return [Array<Case>]
      def all = [untouched, reading, raw, waits, local, produce, latency, backlog]

      def untouched
        Case.new(name: "table-untouched", kind: :table, consumer: "Untouched", records: MILLION, topics: UP_TO_FIVE,
                 threads: UP_TO_FIVE, rounds: 1, servers: [Contender.new("chaton")],
                 title: "1 to 5 topics of 1,000,000 messages (100 B), 1 to 5 threads, Kafka; no value touched",
                 shows: %i[lowest_mps highest_mps cpu_s_per_m], bars: table_bars(600_000, 0.5))
      end

      def reading
        Case.new(name: "table-reading", kind: :table, consumer: "Reading", records: MILLION, topics: [1, 3, 5],
                 threads: [1, 3, 5], rounds: 1, servers: [Contender.new("chaton")],
                 title: "the same, every value read",
                 shows: %i[lowest_mps highest_mps cpu_s_per_m], bars: table_bars(250_000, 1.5))
      end

      def table_bars(lowest, cpu_s)
        [Bar.at_least(:lowest_mps, lowest, against: nil), Bar.at_most(:cpu_s_per_m, cpu_s, against: nil),
         Bar.at_least(:by_topics, 0.9, against: nil), Bar.at_least(:by_threads, 0.9, against: nil)]
      end

      def raw
        Case.new(name: "raw", kind: :raw, consumer: "Untouched", records: MILLION, topics: [1], threads: [1], rounds: 5,
                 title: "one topic of 1,000,000 messages (100 B), Kafka, beside librdkafka in Rust on the same topic",
                 servers: [Contender.new("chaton"), Contender.new("chaton every value", "Reading"),
                           Contender.new("librdkafka")],
                 shows: %i[mps cpu_s_per_m], bars: [Bar.at_least(:mps, 0.6, against: "librdkafka")])
      end

      def waits
        servers = NAPS_MS.map { |ms| Contender.new("chaton #{ms} ms", ms) }
        Case.new(name: "waits", kind: :waits, consumer: "Waiting", topics: [1], threads: [BATCHES], rounds: 3,
                 records: 2_000, seconds: 6, servers:,
                 title: "#{BATCHES} batches at once, one of each partition, with 0, 1 and 100 ms of IO in each, Kafka",
                 shows: %i[wakeups_per_loop driver_wakeups_per_loop waiting_share],
                 bars: waits_bars(servers.map(&:label)))
      end

      # In the shorter loops the engine's thread is busy with handing out hundreds of batches each second. Only with
      # 100 ms does its CPU time show the cost of waiting.
      def waits_bars(labels)
        [*labels.map { |label| Bar.at_most(:wakeups_per_loop, BATCHES + 1, against: nil, of: label) },
         Bar.at_most(:waiting_share, 0.005, against: nil, of: labels.last)]
      end

      def local
        Case.new(name: "local", kind: :local, consumer: "Untouched", records: MILLION, threads: [1], rounds: 3,
                 title: "local log: 1,000,000 messages (100 B) produced (group commit, fsync) and consumed; single " \
                        "durable ones",
                 servers: [Contender.new("chaton")],
                 shows: %i[produce_mps consume_mps single_p50_ms single_p99_ms disk_p50_ms],
                 bars: [Bar.at_least(:produce_mps, 300_000, against: nil),
                        Bar.at_least(:consume_mps, 500_000, against: nil),
                        Bar.at_most(:single_p50_ms, 3, against: nil)])
      end

      def produce
        Case.new(name: "produce", kind: :produce, log: :kafka, records: MILLION, rounds: 3,
                 title: "1,000,000 messages (100 B) produced to Kafka from Ruby, every one reported durable",
                 servers: [Contender.new("chaton produce_many", "many"), Contender.new("chaton produce", "loop")],
                 shows: %i[mps cpu_s_per_m],
                 bars: [Bar.at_least(:mps, 5 * WATERDROP, against: nil),
                        Bar.at_least(:mps, WATERDROP, against: nil, of: "chaton produce")])
      end

      def latency
        Case.new(name: "latency", kind: :latency, consumer: "Pulse", records: 20_000, rate: 1_000, threads: [1],
                 rounds: 2, title: "from produce in one process to consume in another, 1,000 messages/s",
                 servers: [Contender.new("chaton kafka", :kafka), Contender.new("chaton local", :local)],
                 shows: %i[latency_p50_ms latency_p99_ms],
                 bars: [Bar.at_most(:latency_p99_ms, 20, against: nil),
                        Bar.at_most(:latency_p99_ms, 5, against: nil, of: "chaton local")])
      end

      def backlog
        Case.new(name: "backlog", kind: :backlog, consumer: "Slow", records: MILLION, threads: [2], seconds: 30,
                 rounds: 1, title: "memory of a slow consumer with 1,000,000 messages (100 B) to read",
                 servers: [Contender.new("chaton kafka", :kafka), Contender.new("chaton local", :local)],
                 shows: %i[peak_mb read_ahead_mb growth],
                 bars: %w[kafka local].flat_map do |log|
                   [Bar.at_most(:read_ahead_mb, Backlog::BOUND_MB, against: nil, of: "chaton #{log}"),
                    Bar.at_most(:growth, 1.05, against: nil, of: "chaton #{log}")]
                 end)
      end
    end
  end
end
