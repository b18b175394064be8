# frozen_string_literal: true

require_relative "event_loop"

module Chaton
  class Supervisor
    # Replaces one worker, whose memory has grown too large, by another one with the same code:
    #
    #   booting → draining → done        the successor starts first (:replace_first)
    #   leaving → filling → done         the old one exits first: where there is no room for both (:retire_first), or
    #                                    where only one may exist (:only_one)
    #
    # It is `abandoned` where the successor does not come up: the old worker stays if it still exists, otherwise the
    # slot tries again as it does after any failed boot. It only waits for events of the workers.
    class Recycling
      # @return [Symbol] :running, :done or :abandoned
      attr_reader :state
      # @return [Child] the one that is replaced
      attr_reader :child, :slot
      # @return [String] why
      attr_reader :reason
      # @return [Float] monotonic s
      attr_reader :begun_at_s

      # @param how [Symbol] :replace_first, :retire_first or :only_one
      # @param purpose [Symbol] of the old one's end, see {Child#stop}
      # @param at_once [Boolean] without letting the old one finish
      def initialize(worker_set, slot, how, reason: "", purpose: :memory, at_once: false)
        @worker_set = worker_set
        @slot = slot
        @child = slot.child
        @reason = reason
        @purpose = purpose
        @at_once = at_once
        @begun_at_s = EventLoop.now_s
        @state = :running
        how == :replace_first ? start_successor : stop_old_worker
      end

      # Goes as far as it can without waiting.
      def tick
        nil while running? && advance
      end

      def running? = @state == :running

      def at_once? = @at_once

      # @return [Hash{Symbol=>Object}] for `status`
      def to_h = { worker: @slot.index, step: @step, reason: @reason }

      private

      # Each step returns whether anything changed.
      def advance
        # TTOU has removed the slot in the meantime, and stops its processes.
        return finish(:done) unless @worker_set.worker_slots.include?(@slot)

        case @step
        when :booting then boot
        when :draining then finish(:done) if @child.dead?
        when :leaving then refill if @child.dead?
        when :filling then fill
        end
      end

      def start_successor
        @successor = @worker_set.start_successor(@slot, @slot.forker)
        @step = :booting
      end

      def boot
        return finish(:abandoned) if @successor.dead?
        return false unless @successor.ready?

        @slot.promote&.stop(EventLoop.now_s, purpose: @purpose)
        @step = :draining
        true
      end

      # The slot is vacated first, so that the worker's end does not count as a death.
      def stop_old_worker
        @slot.vacate
        how = @at_once ? :stop_now : :stop
        @child.public_send(how, EventLoop.now_s, purpose: @purpose)
        @step = :leaving
      end

      def refill
        @slot.refill(EventLoop.now_s)
        @step = :filling
        true
      end

      def fill
        return finish(:abandoned) if @slot.given_up

        finish(:done) if @slot.child&.ready?
      end

      def finish(state)
        @state = state
        false
      end
    end
  end
end
