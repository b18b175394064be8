# frozen_string_literal: true

require_relative "../support/report"
require_relative "cases"

module Bench
  module Jobs
    # The table of the jobs suite.
    class Summary < Report
      HEAD = ["| case | Chaton | Sidekiq | CPU µs/job | Redis' CPU | PSS MB | bars | |",
              "|---|---:|---:|---:|---:|---:|---|---|"].freeze
      # The rates with 1,000 and 10,000 jobs may differ by this share from the rate with 100,000.
      FLAT = 0.2
      NOTES = <<~TEXT
        Each figure is the median of slices in turn, each with a server process of its own; a ratio is the median of the
        ratios of each round. Where a cell has two figures, the first is Chaton's. A drain begins just before the queue of
        a warm server is filled at once (Redis: one RENAME; SQLite, PostgreSQL: the queue is no longer paused) and ends
        with the last job, by the clock of the process that ran it. CPU is the time of the server's processes from before the start until
        all jobs are acknowledged (`threads_cpu_us` in the raw results has it by thread); Redis is counted apart. When
        enqueueing is measured, CPU is the client's. A slice counts only when the store reports that all its jobs were done,
        none failed and none is left. Sidekiq runs pinned to one core and unpinned, and the better result counts.
        redis-benchmark is Redis' own C client; it sends the command of Chaton's client for one job, one at a time. pgbench is
        PostgreSQL's, on libpq, and sends one INSERT of such a row. PostgreSQL has `shared_buffers` of 256 MB and its other defaults, so a
        commit waits for the disk. Claims are timed by the server's log: plan, execution and commit, in the first half of the
        drain. Solid Queue and GoodJob run from their sources, named by CHATON_BENCH_SOLID_QUEUE and CHATON_BENCH_GOOD_JOB (folders
        of the gem and of what it needs, joined by colons), in one application of Rails in production with Chaton's jobs of
        Active Job, with their defaults but for threads; their jobs all wait when they start, and are counted after the first 500. Rates
        depend on the machine and its other load; ratios and CPU per job depend on them less.
      TEXT

      # @param results [Results]
      def initialize(results) = super(results, title: "Jobs", cases: Cases.all, notes: NOTES)

      # @return [String]
      def table = [super, flat_row].compact.join("\n")

      private

      def head = HEAD

      def row(verdict)
        cells(verdict.a_case.title, shown(verdict, verdict.ours), shown(verdict, verdict.peers),
              *%w[worker_cpu_us redis_cpu_us pss_mb].map { |metric| pair(verdict, metric) },
              verdict.bars.map { |bar, figure, _| bar.describe(figure) }.join("; ") + failed(verdict),
              mark(verdict.met?))
      end

      def failed(verdict) = verdict.failed.empty? ? "" : "; failed: #{verdict.failed.join(", ")}"

      # "143,000/s (0.7 s)" of each server, with its label where there are several.
      def shown(verdict, servers)
        metric = verdict.a_case.shows
        servers.map do |label, figures|
          name = label.sub(/\A(?:chaton|sidekiq) ?/, "")
          [value(metric, figures), servers.size > 1 && !name.empty? ? "(#{name})" : nil].compact.join(" ")
        end.join("<br>")
      end

      def value(metric, figures)
        case metric
        when :drain_ms then "#{Bench.short(figures["drain_ms"] / 1000.0)} s, #{Bench.grouped(figures["rate"])}/s"
        when :start_p99_ms
          "#{percentiles("start", figures)}#{push(figures)}#{disk(figures)}"
        when :claim_p99_ms
          claims = figures.values_at("claim_p50_ms", "claim_p99_ms").map { |ms| Bench.short(ms) }
          "#{Bench.grouped(figures["rate"])}/s, claims p50 #{claims.first}, p99 #{claims.last} ms"
        when :pss_mb then "#{Bench.short(figures["pss_mb"])} MB, RSS #{Bench.short(figures["rss_mb"])} MB"
        else "#{Bench.grouped(figures["rate"])}/s"
        end
      end

      def percentiles(name, figures)
        "p50 #{Bench.short(figures["#{name}_p50_ms"])}, p99 #{Bench.short(figures["#{name}_p99_ms"])} ms"
      end

      def push(figures)
        ", perform_async alone #{percentiles("push", figures)}" if figures.key?("push_p99_ms")
      end

      def disk(figures)
        return unless figures.key?("disk_p99_ms")
        ", disk's sync p50 #{Bench.short(figures["disk_p50_ms"])}, p99 #{Bench.short(figures["disk_p99_ms"])} ms"
      end

      def pair(verdict, metric)
        ours = verdict.own&.fetch(metric, nil)
        theirs = verdict.best_peer("rate", "sidekiq")&.then { |label| verdict.peers.dig(label, metric) }
        [ours, theirs].compact.map { |figure| Bench.short(figure) }.join(" / ")
      end

      # Compares the rates with few jobs to the rate with many.
      def flat_row
        rates = Cases::COUNTS.to_h { |jobs| [jobs, rate("drain-#{jobs}")] }
        return unless rates.values.all?
        bar = Bar.within(:rate, FLAT)
        shares = rates.except(Cases::MANY).transform_values { |found| found / rates[Cases::MANY] }
        results = shares.map { |jobs, share| "with #{Bench.grouped(jobs)} #{bar.describe(share)}" }
        "| the curve: rate against that with #{Bench.grouped(Cases::MANY)} jobs | | | | | | #{results.join("; ")} | " \
          "#{mark(shares.values.all? { |share| bar.met_by?(share) })} |"
      end

      def rate(name) = verdicts.find { |verdict| verdict.a_case.name == name }&.own&.fetch("rate")
    end
  end
end
