# frozen_string_literal: true

require "json"
require_relative "../jobs"
require_relative "../native"
require_relative "role"

module Chaton
  class Workload
    # The role jobs in one process: the jobs engine and the handler of its jobs.
    class JobsRole < Role
      # Time for jobs that were interrupted to end.
      SHUTDOWN_S = 3.0

      # @return [Jobs::Handler] runs one job
      def handler = @handler ||= Jobs::Handler.new(log: @log, plan: @plan)

      # Takes jobs from {#begin} on.
      def start(native_pool)
        Jobs::Runtime.startup(@log)
        @engine = Native::Jobs.start(native_pool, @context.in_flight_table, Jobs::Runtime.crons(@plan),
                                     Jobs::Runtime.claims_due?)
        Jobs.owner = @engine.identity
        @log.info("jobs are run", store: @plan.jobs.store_shown, identity: @engine.identity,
                                  queues: @plan.jobs.queues.map(&:first).join(","))
        Jobs::Runtime.start_beats(@log)
        # A database that does not answer holds up no boot.
        Thread.new { Jobs.client.elsewhere&.then { |note| @log.info(note) } } if @plan.jobs.store.match?(/\Apostgres/)
      end

      def begin
        @engine.resume unless @quiet
      end

      # Sends running jobs back, in the store first, so that none is lost; then interrupts them. Where what they do is
      # the reason for the stop, they stay in flight for the supervisor to count.
      def give_up
        counted = @context.in_flight_table&.kept?(@context.slot)
        counted ? @engine.leave_running : @engine.give_up
        jobs = handler.interrupt.map(&:describe)
        done = @engine.wait_idle(SHUTDOWN_S)
        went = counted ? "are left to the supervisor, which counts them" : "went back to the front of their queues"
        @log.warn("interrupted jobs #{went}", count: jobs.size, jobs: jobs.join("; "), all_ended: done)
      end

      def stop
        Jobs::Runtime.shutdown(@log)
        super
        Jobs::Runtime.ended(@log)
      end

      # Sends back the jobs of a sibling that died.
      #
      # @param line [String] JSON of the supervisor: identity, cause, tickets
      def recover(line)
        report = JSON.parse(line)
        @engine.recover(report.fetch("identity"), report["cause"], report.fetch("tickets"))
      end

      private

      def quiet_engine
        @log.info("no more jobs are taken", sent_back: @engine.quiet)
        Jobs::Runtime.quiet(@log)
      end
    end
  end
end
