# frozen_string_literal: true

require_relative "../peers/chaton_jobs"
require_relative "../peers/chaton_jobs_scraped"
require_relative "../peers/chaton_active_job"
require_relative "../peers/good_job"
require_relative "../peers/pgbench"
require_relative "../peers/redis_benchmark"
require_relative "../peers/sidekiq"
require_relative "../peers/solid_queue"
require_relative "../support/bar"
require_relative "../support/case"
require_relative "../support/numbers"

module Bench
  module Jobs
    # All cases of the suite, in the order of the table.
    module Cases
      # The counts of Sidekiq's well-known table of 2014.
      COUNTS = [1_000, 10_000, 100_000].freeze
      MANY = 100_000
      THREADS = [1, 10, 25, 100].freeze
      # Of Solid Queue and GoodJob, whose own defaults are 3 and 5. More have no more to do: the jobs need Ruby's lock.
      PEER_THREADS = 5

      module_function

      # @return [Array<Case>]
      def all
        [*few, hundred_thousand, threads, sqlite, *enqueue, delay, sleeping, latency, *postgres, postgres_peers,
         *postgres_sizes, created, memory, scraped]
      end

      # Small drains end within milliseconds, so they have more rounds.
      def few
        COUNTS.reject { |jobs| jobs == MANY }.zip([9, 7]).map do |jobs, rounds|
          row(name: "drain-#{jobs}", title: "#{Bench.grouped(jobs)} no-op jobs, 100 threads, Redis", jobs:, rounds:,
              servers: [chaton(100), *sidekiqs(100)], shows: :drain_ms, bars: [Bar.at_least(:rate, 10)])
        end
      end

      def hundred_thousand
        row(name: "drain-#{MANY}",
            title: "#{Bench.grouped(MANY)} no-op jobs, 100 threads, Redis; Sidekiq with 1 to 100",
            jobs: MANY, rounds: 3, servers: [chaton(100), *sidekiqs(100), *sidekiqs(1, 10, 25)], shows: :drain_ms,
            bars: [Bar.at_least(:rate, 10, against: "sidekiq -c 100"), Bar.at_least(:rate, 7),
                   Bar.at_most(:worker_cpu_us, 7, against: nil),
                   Bar.at_most(:pss_mb, 1, against: "sidekiq -c 100")])
      end

      # The rate should not depend on the configured number of threads.
      def threads
        pairs = [[10, 1], [25, 1], [25, 10]]
        row(name: "threads", title: "#{Bench.grouped(MANY)} no-op jobs, Chaton with 1, 10, 25 and 100 threads, Redis",
            jobs: MANY, rounds: 9, servers: THREADS.map { |count| chaton(count) },
            bars: pairs.map { |one, other| Bar.within(:rate, 0.1, of: label(one), against: label(other)) })
      end

      def sqlite
        row(name: "sqlite", jobs: MANY,
            title: "#{Bench.grouped(MANY)} no-op jobs, 100 threads, SQLite (FULL, one file); Sidekiq on Redis",
            rounds: 3, servers: [chaton(100, sqlite: true), *sidekiqs(10)],
            bars: [Bar.at_least(:rate, 3)])
      end

      # Beside Sidekiq on Redis, which waits for no disk.
      def postgres
        sidekiq = Sidekiq.new(threads: 10)
        [row(name: "postgres", jobs: MANY, title: "#{Bench.grouped(MANY)} no-op jobs, 100 threads, PostgreSQL",
             rounds: 3, servers: [ChatonPostgres.new(threads: "100:100"), sidekiq],
             bars: [Bar.at_least(:rate, 20_000, against: nil)]),
         row(name: "enqueue-bulk-postgres", title: "enqueue: perform_bulk of 1,000, PostgreSQL", kind: :enqueue,
             job: :bulk, jobs: MANY, rounds: 3, servers: [ChatonPostgres.new, sidekiq],
             bars: [Bar.at_least(:rate, 50_000, against: nil)]),
         row(name: "latency-postgres", title: "from enqueueing to start, idle server, PostgreSQL", kind: :latency,
             jobs: 300, rounds: 3, shows: :start_p99_ms, servers: [ChatonPostgres.new, sidekiq],
             bars: [Bar.at_most(:start_p99_ms, 5, against: nil)])]
      end

      # Where the peers are.
      def postgres_peers
        plain = ChatonPostgres.new(threads: "100:100")
        active = ChatonActiveJob.new(threads: "100:100", jobs: 20_000)
        bars = [plain, active].flat_map do |chaton|
          %w[solid_queue good_job].map { |peer| Bar.at_least(:rate, 10, against: peer, of: chaton.label) }
        end
        row(name: "postgres-peers", jobs: MANY, rounds: 3, bars: [Bar.at_least(:rate, 20_000, against: nil), *bars],
            title: "#{Bench.grouped(MANY)} no-op jobs, PostgreSQL; of Active Job #{Bench.grouped(active.jobs)}, " \
                   "and #{Bench.grouped(TableQueue::JOBS)} on Solid Queue and GoodJob",
            servers: [plain, active, *SolidQueue.installed(PEER_THREADS), *GoodJob.installed(PEER_THREADS)])
      end

      # The peer of one push is one INSERT by libpq.
      def postgres_sizes
        few, many = [10_000, 1_000_000].map { |jobs| ChatonPostgres.new(threads: "100:100", jobs:, logs: true) }
        [row(name: "enqueue-one-postgres", title: "enqueue: perform_async, one by one, PostgreSQL", kind: :enqueue,
             job: :one, jobs: 5000, rounds: 5, servers: [ChatonPostgres.new, Pgbench.new],
             bars: [Bar.at_least(:rate, 0.9, against: Pgbench::LABEL)]),
         row(name: "postgres-waiting", title: "1,000,000 no-op jobs waiting, and 10,000, 100 threads, PostgreSQL",
             rounds: 3, servers: [many, few], shows: :claim_p99_ms,
             bars: [Bar.at_most(:claim_p99_ms, 20, against: nil), Bar.at_least(:rate, 0.7, against: few.label)])]
      end

      # A C client sends the command that Chaton's client sends for one job.
      def enqueue
        servers = [ChatonJobs.new, Sidekiq.new(threads: 10), ChatonJobs.new(sqlite: true)]
        [row(name: "enqueue-one", title: "enqueue: perform_async, one by one, Redis (and SQLite)", kind: :enqueue,
             job: :one, jobs: 10_000, servers: [*servers, RedisBenchmark.new],
             bars: [Bar.at_least(:rate, 2.5, against: "sidekiq"),
                    Bar.at_least(:rate, 0.9, against: RedisBenchmark::LABEL)]),
         row(name: "enqueue-bulk", title: "enqueue: perform_bulk of 1,000, Redis (and SQLite)", kind: :enqueue,
             job: :bulk, jobs: MANY, servers:, bars: [Bar.at_least(:rate, 2)])]
      end

      def delay
        row(name: "delay", title: "no-op jobs, 10 threads, Redis 1 ms away each way", jobs: 20_000, delay_ms: 1,
            rounds: 3, servers: [chaton(10), Sidekiq.new(threads: 10)], bars: [Bar.at_least(:rate, 15)])
      end

      def sleeping
        row(name: "sleep", title: "200 jobs that sleep 100 ms, Redis, after as many", job: :nap, nap_s: 0.1,
            jobs: 200, servers: [ChatonJobs.new(threads: "1:256"), Sidekiq.new(threads: 256)], shows: :drain_ms,
            bars: [Bar.at_least(:ideal, 0.95, against: nil)])
      end

      def latency
        on_sqlite = ChatonJobs.new(sqlite: true)
        row(name: "latency", title: "from enqueueing to start, idle server, Redis and SQLite", kind: :latency,
            jobs: 300, rounds: 3, shows: :start_p99_ms,
            servers: [ChatonJobs.new, on_sqlite, Sidekiq.new(threads: 10)],
            bars: [Bar.at_most(:start_p99_ms, 5, against: nil),
                   Bar.at_most(:start_p99_ms, 5, against: nil, of: on_sqlite.label)])
      end

      # Counting slows both servers a little, so no rate is compared here.
      def created
        bars = %i[threads_created fibers_created fiber_switches].map { |metric| Bar.at_most(metric, 0, against: nil) }
        row(name: "created", title: "threads and fibers created by 10,000 jobs, 10 threads", jobs: 10_000,
            watch: true, rounds: 3, servers: [chaton(10), Sidekiq.new(threads: 10)], bars:)
      end

      def memory
        row(name: "memory", title: "memory after #{Bench.grouped(MANY)} no-op jobs, 10 threads, Redis", jobs: MANY,
            rounds: 3, servers: [chaton(10), Sidekiq.new(threads: 10)], shows: :pss_mb,
            bars: [Bar.at_most(:pss_mb, 1), Bar.at_most(:rss_mb, 1)])
      end

      # Long enough for several scrapes.
      def scraped
        plain = chaton(10)
        row(name: "metrics-scraped", jobs: 4 * MANY, rounds: 11,
            servers: [ChatonJobsScraped.new(threads: "10:10"), plain],
            title: "#{Bench.grouped(4 * MANY)} no-op jobs, 10 threads; metrics read each second, against no admin " \
                   "endpoint", bars: [Bar.at_least(:rate, 0.99, against: plain.label)])
      end

      def row(**given) = Case.new(kind: :drain, job: :noop, shows: :rate, **given)
      def chaton(threads, **rest) = ChatonJobs.new(threads: "#{threads}:#{threads}", **rest)
      def label(threads) = chaton(threads).label

      # Each pinned and unpinned.
      def sidekiqs(*threads)
        threads.flat_map { |count| [Sidekiq.new(threads: count), Sidekiq.new(threads: count, core: PINNED_CORE)] }
      end
    end
  end
end
