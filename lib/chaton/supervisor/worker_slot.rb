# frozen_string_literal: true

require_relative "restart_policy"

module Chaton
  class Supervisor
    # A worker's number and the processes that have it: the child, during a phased restart or while it is recycled also
    # its successor, and the time at which the next one is due.
    class WorkerSlot
      attr_reader :index
      # @return [Child, nil] the one that serves
      attr_reader :child
      # @return [Child, nil] the one that takes over once it is ready
      attr_reader :successor
      # @return [Preloader, InProcessForker] forks the next child
      attr_accessor :forker
      # @return [Float, nil] when the next child is due (monotonic s)
      attr_reader :due_at
      # @return [String, nil] why no further child is started
      attr_reader :given_up

      # @param forker [Preloader, InProcessForker]
      def initialize(index, forker:, policy:, now_s:)
        @index = index
        @forker = forker
        @policy = policy
        @due_at = now_s
      end

      # @param child [Child, nil] the process that has the number now
      def child=(child)
        @child = child
        @due_at = nil
      end

      # @param child [Child, nil] the process that takes the number over when it is ready
      def successor=(child)
        @successor = child
        @due_at = nil
      end

      # Makes the successor the child.
      #
      # @return [Child, nil] the child it replaces, to be stopped
      def promote
        replaced = @child
        @child = @successor
        @successor = nil
        @forker = @child.forker
        @given_up = nil
        replaced
      end

      # Removes the child, which is asked to exit: its end does not count as a death, and no child follows until
      # {#refill}.
      def vacate
        @child = nil
        @due_at = nil
      end

      # Makes the next child due, unless there is one already.
      def refill(now_s)
        @due_at ||= now_s if @child.nil? && @successor.nil? && !@given_up
      end

      # The child is ready.
      def ready = @policy.ready

      # A child of this slot ended; decides what follows.
      #
      # @param clean [Boolean] whether it ended with status 0
      # @return [RestartPolicy::RestartAfter, RestartPolicy::GiveUp, nil] nil: nothing follows
      def child_ended(child, now_s, clean: false)
        if child.equal?(@successor)
          @successor = nil
          # The child that was to be replaced may have died in the meantime.
          @due_at = now_s if @child.nil? && !@given_up
          return
        end
        return unless child.equal?(@child)

        @child = nil
        follow(verdict(child, now_s, clean), child, now_s)
      end

      def due?(now_s) = !@due_at.nil? && now_s >= @due_at

      private

      def verdict(child, now_s, clean)
        return @policy.refused if child.refused?

        child.served? ? @policy.died(now_s, clean: clean) : @policy.boot_failed
      end

      def follow(verdict, child, now_s)
        # The successor is the replacement.
        return if @successor

        if verdict.is_a?(RestartPolicy::GiveUp)
          @given_up = child.reason || "it ended before it was ready"
        else
          @due_at = now_s + verdict.delay_s
        end
        verdict
      end
    end
  end
end
