# frozen_string_literal: true

module Chaton
  class CLI
    class Top < ServerCommand
      # One answer of the server as the screen needs it: a row for each worker, or one for a server without workers.
      class Sample
        # A process that serves; `counts` are totals since its start, `soft` its ceiling of memory in bytes or nil.
        Row = Struct.new(:worker, :roles, :pid, :state, :ready, :age_s, :connections, :queued, :running, :threads, :pss,
                         :soft, :counts, keyword_init: true)

        attr_reader :status, :rows
        # @return [Float] when it was read
        attr_reader :at_s

        # @param status [Hash{String=>Object}] as `chaton status --json` prints it
        def initialize(status, at_s: Process.clock_gettime(Process::CLOCK_MONOTONIC))
          @status = status
          @at_s = at_s
          workload = status["workload"]
          @rows = workload ? [single(workload)] : Array(status["workers"]).map { |worker| row(worker) }
        end

        # @return [Hash{String=>Integer}] totals of the server and of its stores
        def counts
          { "requests" => rows.sum { |row| row.counts["requests"] },
            "jobs" => @status.dig("jobs", "stats", "processed").to_i,
            "records" => Array(@status.dig("streams", "groups")).sum { |group| group["committed"].to_i } }
        end

        # @return [Array(Integer, Integer)] threads that run work, and all
        def threads = [rows.sum { |row| row.running.to_i }, rows.sum { |row| row.threads.to_i }]

        # @return [Array(Integer, Integer)] bytes in use by all processes, and the ceiling; nil where unknown
        def memory
          memory = @status["memory"] || {}
          used = memory["total"] || memory["pss"] || rows.sum { |row| row.pss.to_i }
          [used, memory.values_at("limit_tree", "container", *("limit" if @status["workload"])).compact.min]
        end

        private

        def row(worker)
          memory = worker["memory"] || {}
          Row.new(**worker.slice("worker", "roles", "pid", "state", "ready", "age_s", "connections", "queued",
                                 "running", "threads").transform_keys(&:to_sym),
                  pss: memory["pss"], soft: memory["soft"],
                  counts: { "requests" => worker["requests_total"].to_i, "done" => worker["finished_total"].to_i })
        end

        def single(workload)
          web, pool, memory = workload.values_at("web", "pool", "memory").map { |part| part || {} }
          Row.new(worker: 0, roles: workload["roles"], pid: @status["pid"], state: @status["state"],
                  ready: @status["state"] == "running" && @status["ready"] != false,
                  age_s: @status["uptime_s"], connections: web["connections"],
                  queued: workload.dig("queue", "waiting"), running: pool["running"], threads: pool["threads"],
                  pss: @status.dig("memory", "pss") || memory["pss"], soft: @status.dig("memory", "limit"),
                  counts: { "requests" => web["requests_total"].to_i, "done" => pool["finished"].to_i })
        end
      end

      # What happened a second between two samples, and some minutes of that for the curves.
      class Rates
        # Samples that are kept for each curve.
        KEPT = 120

        def initialize
          @history = Hash.new { |all, name| all[name] = [] }
          @by_pid = {}
        end

        def add(sample)
          before, @last = @last, sample
          return unless before && (elapsed_s = sample.at_s - before.at_s).positive?

          former = before.counts
          sample.counts.each do |name, count|
            # The totals of a replaced worker begin at 0.
            @history[name] = [*@history[name], [(count - former[name]) / elapsed_s, 0].max].last(KEPT)
          end
          @by_pid = by_pid(before, sample, elapsed_s)
        end

        # @param name [String] requests, jobs or records
        # @return [Array<Float>] the newest at the end
        def of(name) = @history.fetch(name, [])

        # @return [Float, nil] units of work that this process ended a second
        def of_pid(pid) = @by_pid[pid]

        private

        def by_pid(before, sample, elapsed_s)
          done = before.rows.to_h { |row| [row.pid, row.counts["done"]] }
          sample.rows.filter_map do |row|
            [row.pid, (row.counts["done"] - done[row.pid]) / elapsed_s] if done[row.pid]
          end.to_h
        end
      end
    end
  end
end
