# frozen_string_literal: true

require "json"
require_relative "../jobs"
require_relative "../native"
require_relative "../version"

module Chaton
  class Service
    # The role jobs in one process: the jobs engine, and what runs its jobs.
    class JobsSide
      # Time for jobs that were interrupted to end.
      SHUTDOWN_S = 3.0

      # @return [Native::Jobs] once started
      attr_reader :engine

      # @param plan [Config::Plan]
      # @param place [Place]
      # @param running [#call] role and ids → what runs of it now, each with its thread
      # @param log [Telemetry::Log]
      def initialize(plan, place:, running:, log:)
        @plan = plan
        @place = place
        @running = running
        @log = log
      end

      # @return [#call] runs one job
      def handler = Jobs::Handler.new(log: @log, plan: @plan)

      # Takes jobs from its return on.
      #
      # @param native_pool [Native::Pool]
      # @return [void]
      def start(native_pool)
        Jobs::Runtime.startup(@log)
        @engine = Native::Jobs.start(native_pool, @place.ledger, settings)
        @log.info("jobs are run", store: @plan.jobs.store_shown, identity: @engine.identity,
                                  queues: @plan.jobs.queues.map(&:first).join(","))
      end

      # Takes no more jobs.
      #
      # @return [void]
      def quiet
        return if @quiet

        @quiet = true
        released = @engine.quiet
        @log.info("no more jobs are taken", sent_back: released)
        Jobs::Runtime.quiet(@log)
      end

      # @param timeout_s [Float]
      # @return [Boolean] whether every job has ended
      def wait(timeout_s) = @engine.wait_idle(timeout_s)

      # Sends back what runs, in the store first, so that nothing is lost whatever follows; then interrupts it.
      #
      # @return [void]
      def give_up
        _, ids = @engine.give_up
        running = @running.call("jobs", ids)
        running.each_value { |thread| thread.raise(Jobs::Shutdown) }
        done = @engine.wait_idle(SHUTDOWN_S)
        names = running.keys.map { |job| job[:what] }.join("; ")
        @log.warn("interrupted jobs went back to the front of their queues", count: ids.size, jobs: names,
                                                                             all_ended: done)
      end

      # @return [void]
      def stop
        Jobs::Runtime.shutdown(@log)
        @engine.stop
      end

      # @return [Hash]
      def status = { jobs: @engine.stats }

      # A sibling died: sends back what it had.
      #
      # @param line [String] JSON of the supervisor: identity, cause, tickets
      # @return [void]
      def recover(line)
        told = JSON.parse(line)
        @engine.recover(told.fetch("identity"), told["cause"], told.fetch("tickets"))
      end

      private

      def settings
        jobs = @plan.jobs
        jobs.store_settings.merge(
          queues: jobs.queues, mode: jobs.mode, prefetch_s: jobs.prefetch_s, prefetch_max: jobs.prefetch_max,
          ack_delay_s: jobs.ack_delay_s, beat_s: jobs.beat_s, limit_retry_s: jobs.limit_retry_s, labels: jobs.labels,
          crons: Jobs::Runtime.crons(@plan), threads: @plan.threads_max, tag: @plan.tag, slot: @place.slot,
          version: VERSION, claim_due: Jobs::Runtime.claims_due?
        )
      end
    end
  end
end
