# frozen_string_literal: true

module Chaton
  class Supervisor
    # One phased restart: brings every seat to a new origin, one after the
    # other, and back to the old one when the new code does not come up.
    #
    #   loading → choosing [→ leaving] → booting → draining → choosing → … → done | abandoned
    #
    # An old worker is asked to leave only when its successor is ready, and the
    # next seat has its turn only when the old one has left: never more than one
    # process above the configured number. Where both would be one member of a
    # group (`retires_first?`), the old one leaves before its successor starts.
    # All it waits for are events of the fleet and the mold, so it has no
    # deadline of its own.
    class Rollout
      # @return [Symbol] :running, :done or :abandoned
      attr_reader :state
      # @return [String, nil] why it was abandoned
      attr_reader :reason

      # @param fleet [Fleet]
      # @param target [Object] the new origin: `ready?`, `dead?`, `reason`, `generation`, `retire`
      # @param log [Telemetry::Log]
      # @param urgent [#call] Child → whether it is to be replaced before others
      # @yield when it is over, either way
      def initialize(fleet, target, log:, urgent: ->(_) { false }, &over)
        @over = over
        @urgent = urgent
        @fleet = fleet
        @target = target
        @previous = fleet.origin
        @log = log
        @state = :running
        @step = :loading
        log.info("phased restart begins", generation: target.generation)
      end

      # Goes as far as it can without waiting.
      #
      # @return [void]
      def tick(_now_s)
        nil while @state == :running && advance
      end

      # @return [Boolean]
      def running?
        @state == :running
      end

      # @return [Hash] for `status`
      def to_h
        { state: @state, step: @step, generation: @target.generation, reason: @reason }
      end

      private

      # Each returns whether anything moved.
      def advance
        case @step
        when :loading then load
        when :choosing then choose
        when :leaving then leave
        when :booting then boot
        when :draining then drain
        end
      end

      def load
        return abandon(@target.reason) if @target.dead?

        to(:choosing) if @target.ready?
      end

      def choose
        left = @fleet.seats.reject { |seat| seat.origin.equal?(goal) }
        @seat = left.find { |seat| seat.child && @urgent.call(seat.child) } || left.first
        return finish unless @seat
        return false unless @fleet.room?

        @seat.child && @fleet.retires_first?(@seat) ? retire : succeed
      end

      # The seat lets go of it first, so that its end is not taken for a death.
      def retire
        @replaced = @seat.child
        @seat.vacate
        @replaced.stop(EventLoop.now_s)
        to(:leaving)
      end

      def leave
        return false unless @replaced.dead? && @fleet.room?

        @fleet.seats.include?(@seat) ? succeed : to(:choosing)
      end

      def succeed
        @child = @fleet.start_successor(@seat, goal)
        to(:booting)
      end

      def boot
        # Taken away by TTOU in the meantime.
        return to(:choosing) unless @fleet.seats.include?(@seat)
        return failed if @child.dead?
        return false unless @child.ready?

        @replaced = @seat.promote
        @replaced&.stop(EventLoop.now_s)
        to(:draining)
      end

      def drain
        to(:choosing) if @replaced.nil? || @replaced.dead?
      end

      def failed
        return abandon(@child.reason || "worker #{@seat.index} did not become ready") unless @reason

        # On the way back: whoever serves here stays, its replacement will be the old code.
        @seat.origin = @previous
        to(:choosing)
      end

      # Where seats are brought: forth, or back once the restart is abandoned.
      def goal
        @reason ? @previous : @target
      end

      def abandon(reason)
        @reason = reason || "the new code did not come up"
        @log.error("phased restart abandoned; the old code goes on serving. Mend the cause and restart again",
                   generation: @target.generation, reason: @reason)
        to(:choosing)
      end

      def finish
        goal.equal?(@target) ? complete : @target.retire
        @state = @reason ? :abandoned : :done
        @over&.call
        false
      end

      def complete
        @fleet.origin = @target
        @previous.retire
        @log.info("phased restart done", generation: @target.generation)
      end

      def to(step)
        @step = step
        true
      end
    end
  end
end
