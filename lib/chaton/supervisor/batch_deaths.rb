# frozen_string_literal: true

module Chaton
  class Supervisor
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
