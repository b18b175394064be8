# frozen_string_literal: true

require "json"
require_relative "../memory/tracer_control"
require_relative "../telemetry/backtraces"
require_relative "../telemetry/reply"

module Chaton
  class Workload
    # Runs the commands that a worker gets from the supervisor, and a single process from its control socket. Called on
    # the support thread.
    class WorkerCommands
      # Partitions that a reply names at most, so that it stays small.
      PARTITIONS_MAX = 200

      # @param running [#call] lists what runs now
      # @param groups [#call] the consumer groups with their partitions, or nil
      def initialize(memory:, tracer_control:, running:, groups:, crons:, log:)
        @memory = memory
        @running = running
        @groups = groups
        @crons = crons
        @tracer_control = tracer_control
        @log = log
      end

      # @param line [String] JSON with the command's name, "do", and its arguments
      def call(line)
        command = JSON.parse(line)
        case command["do"]
        when "trim" then @memory.trim
        when "ask" then reply_to(command)
        else @log.warn("unknown command from the supervisor", command: line)
        end
      end

      private

      def reply_to(command)
        case command["action"]
        when "running" then reply(command, running: @running.call, **partitions)
        when "backtraces" then reply(command, threads: Telemetry::Backtraces.read, running: @running.call)
        when "filter-arguments" then reply(command, **filtered(command["arguments"]))
        when "run-cron" then run_cron(command)
        else @tracer_control.call(command)
        end
      end

      def filtered(json)
        { values: Jobs::ArgumentFilter.call(json) }
      rescue StandardError => e
        { ok: false, error: "the arguments cannot be filtered: #{e.message} (#{e.class})" }
      end

      # On a thread of its own: the store may take long to answer, and the support thread has other work.
      def run_cron(command)
        return reply(command, ok: false, error: "another job is being enqueued; try again") if @push&.alive?

        @push = Thread.new { reply(command, **enqueued(command["name"])) }
      end

      def enqueued(name)
        line = @crons.find { |one| one.name == name }
        return { ok: false, error: "this worker's configuration has no cron entry #{name}" } unless line

        jid = Jobs::CronEntry.enqueue(line)
        jid ? { jid: jid } : { ok: false, error: "no job was enqueued: middleware stopped it, or its lock is held" }
      rescue StandardError => e
        { ok: false, error: "no job was enqueued: #{e.message} (#{e.class})" }
      end

      # Those that are furthest behind.
      def partitions
        groups = @groups.call or return {}
        all = groups.flat_map { |group| group[:partitions].map { |one| { group: group[:name], **one } } }
        troubles = groups.filter_map { |group| { group: group[:name], text: group[:trouble] } if group[:trouble] }
        { partitions: all.max_by(PARTITIONS_MAX) { |one| one[:lag] }, partitions_total: all.size, troubles: troubles }
      end

      def reply(command, **answer)
        reply = Telemetry::Reply.new(command.fetch("reply_to"), log: @log)
        reply.deliver({ worker: @tracer_control.worker, pid: Process.pid, ok: true, **answer })
      end
    end

    # Signals that were left for this process in the store, as the buttons of Sidekiq's web interface do. Called on the
    # support thread.
    class StoreSignals
      def initialize(workload, log:)
        @workload = workload
        @log = log
      end

      # @param name [String] without "SIG"
      def call(name)
        @log.info("a signal was left for this process in the store", signal: name)
        case name
        when "TSTP" then @workload.quiet_intake
        when "TTIN" then Telemetry::Backtraces.write(@log, "SIGTTIN")
        # The main thread handles it and drains.
        when "TERM", "INT" then Process.kill("TERM", Process.pid)
        else @log.warn("that signal means nothing here; known are TSTP, TERM and TTIN", signal: name)
        end
      end
    end
  end
end
