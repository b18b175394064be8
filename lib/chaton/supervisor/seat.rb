# frozen_string_literal: true

require_relative "restart_policy"

module Chaton
  class Supervisor
    # A worker's number, whoever holds it at the moment: its child, during a
    # phased restart or while it is recycled the successor too, and when the next
    # one is due.
    class Seat
      # @return [Integer]
      attr_reader :index
      # @return [Child, nil] who serves here
      attr_reader :child
      # @return [Child, nil] who takes over once it is ready
      attr_reader :successor
      # @return [Object] who forks the next child of this seat
      attr_accessor :origin
      # @return [Float, nil] when the next child is due (monotonic s)
      attr_reader :due_at
      # @return [String, nil] why nobody is started here any more
      attr_reader :given_up

      # @param index [Integer]
      # @param origin [Object]
      # @param policy [RestartPolicy]
      # @param now_s [Float]
      def initialize(index, origin:, policy:, now_s:)
        @index = index
        @origin = origin
        @policy = policy
        @due_at = now_s
      end

      # @param child [Child]
      # @return [void]
      def take(child)
        @child = child
        @due_at = nil
      end

      # @param child [Child]
      # @return [void]
      def await(child)
        @successor = child
        @due_at = nil
      end

      # The successor takes the seat.
      #
      # @return [Child, nil] the child it replaces, to be stopped
      def promote
        replaced = @child
        @child = @successor
        @successor = nil
        @origin = @child.origin
        @given_up = nil
        replaced
      end

      # Lets go of its child, which is leaving by our own wish: its end is no
      # death, and nobody follows until {#refill}.
      #
      # @return [void]
      def vacate
        @child = nil
        @due_at = nil
      end

      # The next one is due, unless somebody is there or on the way.
      #
      # @param now_s [Float]
      # @return [void]
      def refill(now_s)
        @due_at ||= now_s if @child.nil? && @successor.nil? && !@given_up
      end

      # The child is ready.
      #
      # @return [void]
      def ready
        @policy.ready
      end

      # A child of this seat died; decides what follows.
      #
      # @param child [Child]
      # @param now_s [Float]
      # @return [RestartPolicy::Again, RestartPolicy::Stop, nil] nil: nothing follows
      def lost(child, now_s)
        if child.equal?(@successor)
          @successor = nil
          # Whoever was to be replaced may have died in the meantime.
          @due_at = now_s if @child.nil? && !@given_up
          return
        end
        return unless child.equal?(@child)

        @child = nil
        follow(child.served? ? @policy.died(now_s) : @policy.boot_failed, child, now_s)
      end

      # @param now_s [Float]
      # @return [Boolean] whether a child should be started now
      def due?(now_s)
        !@due_at.nil? && now_s >= @due_at
      end

      private

      def follow(verdict, child, now_s)
        # A successor on its way is the replacement.
        return if @successor

        if verdict.is_a?(RestartPolicy::Stop)
          @given_up = child.reason || "it ended before it was ready"
        else
          @due_at = now_s + verdict.delay_s
        end
        verdict
      end
    end
  end
end
