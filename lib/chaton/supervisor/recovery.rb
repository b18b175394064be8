# frozen_string_literal: true

require "json"

module Chaton
  class Supervisor
    # Sees to it that the jobs of a worker that died go back to their queues at once: reads in the ledger who it was
    # and what it had started, and tells a living worker, which has a connection to the store. The supervisor itself
    # has none.
    #
    # A worker that was told and dies too may not have done it: its successor in the job is told again. Doing it
    # twice does nothing.
    class Recovery
      # Lines kept while nobody can take them; past it the oldest is left to the lease of its owner.
      LINES_MAX = 256
      # Lines remembered of each worker that was told.
      TOLD_MAX = 16
      # Started jobs in one line, so that it stays below what a worker reads (64 KiB).
      TICKETS_MAX = 3000

      # @param ledger [Native::InFlightTable]
      # @param log [Telemetry::Log]
      def initialize(ledger, log:)
        @ledger = ledger
        @log = log
        @lines = []
        @told = {}.compare_by_identity
      end

      # A child died: takes down what it leaves behind, clears its place, and tells another one.
      #
      # @param child [Child]
      # @param cause [String, nil] "SIGSEGV", "exit 1"; nil where its end is no fault of a job
      # @param children [Array<Child>] who lives
      # @return [void]
      def lost(child, cause, children)
        return unless child.roles.include?(:jobs)

        note(child, cause)
        hand_over(children)
      end

      # Hands the lines to a child that can do something about them.
      #
      # @param children [Array<Child>]
      # @return [void]
      def hand_over(children)
        return if @lines.empty?

        child = children.find { |one| one.ready? && one.roles.include?(:jobs) }
        return @lines.shift([@lines.size - LINES_MAX, 0].max) unless child

        # What does not fit on its leash any more waits for the next time.
        told, @lines = @lines.partition { |line| child.leash.recover(line) }
        @told[child] = [*@told[child], *told].last(TOLD_MAX)
      end

      private

      def note(child, cause)
        @lines.concat(@told.delete(child) || [])
        identity = @ledger.identity(child.slot)
        started = @ledger.started(child.slot)
        @ledger.clear(child.slot)
        return unless identity

        tickets = started.map(&:first).first(TICKETS_MAX)
        @lines << JSON.generate({ identity: identity, cause: cause, tickets: tickets })
        # One that was told to stop has usually nothing left.
        return unless cause || tickets.any?

        @log.info("the jobs that a worker left are sent back", worker: child.index, started: tickets.size,
                                                               **{ cause: cause }.compact)
      end
    end
  end
end
