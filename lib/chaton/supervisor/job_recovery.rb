# frozen_string_literal: true

require "json"

module Chaton
  class Supervisor
    # Returns the jobs of a worker that died to their queues at once. It reads the worker's identity and started jobs
    # from the in-flight table and sends them to a living worker, because the supervisor has no connection to the store.
    #
    # If that worker dies too, it may not have returned them, so its records are sent again to another one. Returning a
    # job twice has no effect.
    class JobRecovery
      # Records kept while no worker can take them. Above it the oldest is dropped; its jobs are returned when the lease
      # of their owner expires.
      LINES_MAX = 256
      # Records remembered for each worker that got some.
      SENT_MAX = 16
      # Started jobs in one record, which must stay below what a worker reads (64 KiB).
      TICKETS_MAX = 3000

      def initialize(in_flight_table, log:)
        @in_flight_table = in_flight_table
        @log = log
        @lines = []
        @sent = {}.compare_by_identity
      end

      # The worker is about to be ended for what its jobs do: they stay in its in-flight set.
      def keep(child)
        @in_flight_table.keep(child.scoreboard_slot) if child.roles.include?(:jobs)
      end

      # A worker has ended: records its jobs, clears its row, and sends the record to another worker.
      #
      # @param cause [String, nil] "SIGSEGV", "exit 1", "memory"; nil where no job can have caused its end
      # @param children [Array<Child>] the living ones
      def worker_ended(child, cause, children)
        return unless child.roles.include?(:jobs)

        record(child, cause)
        deliver(children)
      end

      # Sends the records to a ready worker with jobs.
      def deliver(children)
        return if @lines.empty?

        child = children.find { |one| one.ready? && one.roles.include?(:jobs) }
        return @lines.shift([@lines.size - LINES_MAX, 0].max) unless child

        # Records that its channel has no room for wait until the next delivery.
        sent, @lines = @lines.partition { |line| child.channel.recover(line) }
        @sent[child] = [*@sent[child], *sent].last(SENT_MAX)
      end

      private

      def record(child, cause)
        @lines.concat(@sent.delete(child) || [])
        identity = @in_flight_table.identity(child.scoreboard_slot)
        started = @in_flight_table.started(child.scoreboard_slot)
        @in_flight_table.clear(child.scoreboard_slot)
        return unless identity

        tickets = started.map(&:first).first(TICKETS_MAX)
        @lines << JSON.generate({ identity: identity, cause: cause, tickets: tickets })
        # A worker that was asked to stop has usually no job left.
        return unless cause || tickets.any?

        @log.info("the jobs of a worker that ended are returned", worker: child.index, started: tickets.size,
                                                                  **{ cause: cause }.compact)
      end
    end

    # Notes which batches of records a worker was running when it died. The notes are in shared memory, so that a
    # successor and every other worker know them before they hand out the records again: after two deaths a record runs
    # alone, after three it is a dead letter.
    class BatchDeaths
      def initialize(batch_table, death_table, log:)
        @batch_table = batch_table
        @death_table = death_table
        @log = log
        @counted = {}.compare_by_identity
      end

      # The worker is about to be ended for what its consumers do. Its batches are counted now: another worker may have
      # its partitions before its end is noticed.
      def worker_blamed(child, cause)
        return unless child.roles.include?(:streams)

        @batch_table.keep(child.scoreboard_slot)
        count(child, cause)
      end

      # A worker has ended: counts its batches and clears its row.
      #
      # @param cause [String, nil] "SIGSEGV", "exit 1", "memory"; nil where no consumer can have caused its end
      def worker_ended(child, cause)
        return unless child.roles.include?(:streams)

        count(child, cause) if cause
        @counted.delete(child)
        @batch_table.clear(child.scoreboard_slot)
      end

      private

      def count(child, cause)
        counted = @counted[child] ||= []
        batches = @batch_table.started(child.scoreboard_slot).map { |_, batch, _| batch } - counted
        return if batches.empty?

        counted.concat(batches)
        batches.each { |batch| @death_table.add(batch, cause) }
        @log.info("the batches that a worker runs when it dies are counted", worker: child.index, cause: cause,
                                                                             batches: batches.size)
      end
    end
  end
end
