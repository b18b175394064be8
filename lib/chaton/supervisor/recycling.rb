# frozen_string_literal: true

require_relative "event_loop"

module Chaton
  class Supervisor
    # One worker on its way out and the one that comes for it, from the same code:
    #
    #   booting → draining → done        the successor first (:replace_first)
    #   leaving → filling → done         the old one first: where both have no room (:retire_first), or where there can
    #                                    be one at a time (:only_one)
    #
    # and `abandoned` where the successor does not come up: the old one stays, if it is still there, or the seat goes
    # on trying as it does after any failed boot. All it waits for are events of the fleet.
    class Recycling
      # @return [Symbol] :running, :done or :abandoned
      attr_reader :state
      # @return [Child] who is replaced
      attr_reader :child
      # @return [Seat]
      attr_reader :seat
      # @return [String] why
      attr_reader :reason
      # @return [Float] monotonic s
      attr_reader :begun_at_s

      # @param fleet [Fleet]
      # @param seat [Seat]
      # @param how [Symbol] :replace_first, :retire_first or :only_one
      # @param reason [String]
      # @param at_once [Boolean] without letting the old one finish
      def initialize(fleet, seat, how, reason: "", at_once: false)
        @fleet = fleet
        @seat = seat
        @child = seat.child
        @reason = reason
        @at_once = at_once
        @begun_at_s = EventLoop.now_s
        @state = :running
        how == :replace_first ? await_successor : retire
      end

      # Goes as far as it can without waiting.
      #
      # @return [void]
      def tick
        nil while running? && advance
      end

      # @return [Boolean]
      def running? = @state == :running

      # @return [Boolean] whether the old one was not let finish
      def at_once? = @at_once

      # @return [Hash{Symbol=>Object}] for `status`
      def to_h = { worker: @seat.index, step: @step, reason: @reason }

      private

      # Each returns whether anything moved.
      def advance
        # Taken away by TTOU in the meantime; who is still there leaves by that order.
        return finish(:done) unless @fleet.seats.include?(@seat)

        case @step
        when :booting then boot
        when :draining then finish(:done) if @child.dead?
        when :leaving then refill if @child.dead?
        when :filling then fill
        end
      end

      def await_successor
        @successor = @fleet.start_successor(@seat, @seat.origin)
        @step = :booting
      end

      def boot
        return finish(:abandoned) if @successor.dead?
        return false unless @successor.ready?

        @seat.promote&.stop(EventLoop.now_s)
        @step = :draining
        true
      end

      # The seat lets go of it first, so that its end is not taken for a death.
      def retire
        @seat.vacate
        @at_once ? @child.stop_now(EventLoop.now_s) : @child.stop(EventLoop.now_s)
        @step = :leaving
      end

      def refill
        @seat.refill(EventLoop.now_s)
        @step = :filling
        true
      end

      def fill
        return finish(:abandoned) if @seat.given_up

        finish(:done) if @seat.child&.ready?
      end

      def finish(state)
        @state = state
        false
      end
    end
  end
end
