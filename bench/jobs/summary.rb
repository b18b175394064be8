# frozen_string_literal: true

require_relative "cases"
require_relative "../support/results"
require_relative "../support/verdict"

module Bench
  module Jobs
    # Renders raw results: one table.
    class Summary
      HEAD = ["| case | Chaton | Sidekiq | CPU µs/job | Redis' CPU | PSS MB | bars | |",
              "|---|---:|---:|---:|---:|---:|---|---|"].freeze
      # The rate with 1,000 and with 10,000 jobs may differ from that with 100,000 by so much.
      FLAT = 0.2
      NOTES = <<~TEXT
        Each figure is the median of slices in turn, each with a server process of its own; a ratio is the median of the
        ratios of each round. Where a cell has two figures, the first is Chaton's. A drain is measured on a server that
        is up and has done some jobs, from just before the queue is filled at once (Redis: one RENAME; SQLite: the queue
        is no longer paused) to the end of the last job, by the clock of the process that ran it; CPU is that of the
        server's processes from before the start until all is settled (`threads_cpu_us` in the raw results splits it), of
        Redis apart. Of enqueueing, CPU is the client's. Before a slice counts, the store has to say that all its jobs were
        done, none failed and none is left. Of Sidekiq, pinned to one core and not, the better counts. Rates depend on the
        machine and on what else it does; ratios and CPU per job less so.
      TEXT

      # @param results [Results]
      def initialize(results)
        @results = results
      end

      # @return [Array<Verdict>] of the cases that were run
      def verdicts
        @verdicts ||= Cases.all.filter_map do |a_case|
          @results.raw(a_case.name)&.then { |raw| Verdict.new(a_case, raw) }
        end
      end

      # @return [String]
      def table = [*HEAD, *verdicts.map { |verdict| row(verdict) }, flat_row].compact.join("\n")

      # @return [String] what follows the table
      def remarks = NOTES

      # @return [String] summary.md of a single run
      def to_s
        run = @results.only.facts
        facts = run.fetch("machine").map { |name, value| "- #{name}: #{value}" }
        <<~TEXT
          # Jobs, #{run.fetch("date")}

          `#{run.fetch("command")}`#{" (quick: few slices of at most 10,000 jobs, for orientation only)" if run["quick"]}

          #{facts.join("\n")}

          #{NOTES}
          #{table}

          #{verdicts.count(&:met?)} of #{verdicts.size} rows reached. Raw results: raw/*.json.
        TEXT
      end

      private

      def row(verdict)
        cells = [verdict.a_case.title, shown(verdict, verdict.ours), shown(verdict, verdict.peers),
                 *%w[worker_cpu_us redis_cpu_us pss_mb].map { |metric| pair(verdict, metric) },
                 verdict.bars.map { |bar, figure, _| bar.describe(figure) }.join("; ") + failed(verdict),
                 mark(verdict.met?)]
        "| #{cells.join(" | ")} |"
      end

      def failed(verdict) = verdict.failed.empty? ? "" : "; failed: #{verdict.failed.join(", ")}"
      def mark(met) = met ? "reached" : "**falls short**"

      # "143,000/s (0.7 s)" of each, with its label where there is a choice.
      def shown(verdict, servers)
        metric = verdict.a_case.shows
        servers.map do |label, figures|
          name = label.sub(/\A(?:chaton|sidekiq) ?/, "")
          [value(metric, figures), servers.size > 1 && !name.empty? ? "(#{name})" : nil].compact.join(" ")
        end.join("<br>")
      end

      def value(metric, figures)
        case metric
        when :drain_ms then "#{seconds(figures["drain_ms"])} s, #{Cases.grouped(figures["rate"].round)}/s"
        when :start_p99_ms
          "p50 #{short(figures["start_p50_ms"])}, p99 #{short(figures["start_p99_ms"])} ms#{disk(figures)}"
        when :pss_mb then "#{short(figures["pss_mb"])} MB, RSS #{short(figures["rss_mb"])} MB"
        else "#{Cases.grouped(figures["rate"].round)}/s"
        end
      end

      # What the disk itself took.
      def disk(figures)
        return unless figures.key?("disk_p99_ms")
        ", disk's sync p50 #{short(figures["disk_p50_ms"])}, p99 #{short(figures["disk_p99_ms"])} ms"
      end

      def pair(verdict, metric)
        ours = verdict.ours.values.first&.fetch(metric, nil)
        theirs = verdict.best_peer("rate")&.then { |label| verdict.peers.dig(label, metric) }
        [ours, theirs].compact.map { |figure| short(figure) }.join(" / ")
      end

      # Whether few jobs are done as fast as many.
      def flat_row
        rates = Cases::COUNTS.to_h { |jobs| [jobs, rate("drain-#{jobs}")] }
        return unless rates.values.all?
        bar = Bar.within(:rate, FLAT)
        shares = rates.except(Cases::MANY).transform_values { |found| found / rates[Cases::MANY] }
        told = shares.map { |jobs, share| "with #{Cases.grouped(jobs)} #{bar.describe(share)}" }
        "| the curve: rate against that with #{Cases.grouped(Cases::MANY)} jobs | | | | | | #{told.join("; ")} | " \
          "#{mark(shares.values.all? { |share| bar.met_by?(share) })} |"
      end

      def rate(name)
        found = verdicts.find { |verdict| verdict.a_case.name == name }
        found && found.ours.values.first&.fetch("rate")
      end

      def seconds(milliseconds) = short(milliseconds / 1000.0)
      def short(value) = value >= 100 ? value.round.to_s : format("%.3g", value)
    end
  end
end
