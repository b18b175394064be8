# frozen_string_literal: true

require_relative "../config/types"
require_relative "../telemetry/size"

module Chaton
  class CLI
    # Tells in words what a server without workers does; `chaton status --json` has all counters.
    class WorkloadReport
      # The classes of answers in `responses_total`.
      CLASSES = %w[1xx 2xx 3xx 4xx 5xx].freeze

      # @param facts [Hash{String=>Object}] of a status's `workload`
      def initialize(facts)
        @facts = facts
      end

      def lines = [requests, connections, queue, threads, collections, eden, jobs].compact

      private

      def requests
        web = @facts["web"] or return
        answers = CLASSES.zip(Array(web["responses_total"])).select { |_, count| count.to_i.positive? }
        turned_away = %w[shed_total refused_total].sum { |name| web[name].to_i }
        ["requests: #{number(web["requests_total"])} so far",
         *("answers #{answers.map { |name, count| "#{name} #{number(count)}" }.join(", ")}" unless answers.empty?),
         *("#{number(turned_away)} turned away" if turned_away.positive?),
         *("#{number(web["late_total"])} late" if web["late_total"].to_i.positive?)].join("; ")
      end

      def connections
        web = @facts["web"] or return
        "connections: #{number(web["connections"])} open, #{number(web["accepted_total"])} accepted so far"
      end

      def queue
        queue = @facts["queue"] or return
        return "queue: nothing waits" if queue["waiting"].to_i.zero?

        "queue: #{number(queue["waiting"])} wait, the oldest for #{number(queue["oldest_age_ms"])} ms"
      end

      def threads
        pool = @facts["pool"] or return
        "threads: #{number(pool["threads"])}, of which #{number(pool["running"])} run work"
      end

      def collections
        memory = @facts["memory"] or return
        minor, major = memory.values_at("gc_minor_total", "gc_major_total").map(&:to_i)
        inside_ms = (memory["gc_inside_ns"].to_i / 1e6).round(1)
        "garbage: collected #{number(minor + major)} times, #{number(major)} of them in full; " \
          "#{number(inside_ms)} ms of it while work ran"
      end

      def eden
        memory = @facts["memory"] or return
        bytes, reason, share = memory.values_at("eden_bytes", "eden_reason", "gc_share_ppm")
        return unless bytes

        "eden: #{Telemetry::Size.of(bytes)} between two collections (#{reason}); they take " \
          "#{format("%.1f", share.to_i / 1e4)} % of the work's CPU time"
      end

      def jobs
        jobs = @facts["jobs"] or return
        "jobs of this process: #{number(jobs["processed"])} done, #{number(jobs["failed"])} failed, " \
          "#{number(jobs["running"])} running#{"; it takes no more" if jobs["quiet"]}"
      end

      def number(value) = Config::Types.thousands(value || 0)
    end
  end
end
