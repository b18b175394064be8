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

    # How long workers are not recycled because recycling did not help. Pure.
    #
    # - After a successor that did not come up, no worker is recycled for a pause that doubles each time.
    # - A worker that is above its soft ceiling as soon as it is ready must reach an age that doubles each time: its
    #   successor would be no smaller.
    class RecyclingBackoff
      # The first and the longest pause after a successor that failed.
      PAUSES_S = (5.0..300.0)
      # The first and the longest age of a worker that is too large from the start.
      AGES_S = (60.0..3600.0)

      # @param range [Range<Float>] the first and the longest time
      # @param times [Integer] failures so far
      # @return [Float] a time that doubles with each failure
      def self.doubled(range, times) = [range.begin * (2.0**[times, 30].min), range.end].min

      def initialize
        @failures = 0
        @not_before_s = 0.0
        @too_large = Hash.new(0)
      end

      # A successor did not come up.
      def failed(now_s)
        @not_before_s = now_s + RecyclingBackoff.doubled(PAUSES_S, @failures)
        @failures += 1
      end

      # A successor serves.
      def succeeded
        @failures = 0
        @not_before_s = 0.0
      end

      # @return [Float] seconds until a worker may be recycled again
      def left_s(now_s) = [@not_before_s - now_s, 0.0].max

      # A worker has become ready.
      #
      # @param fits [Boolean] whether it is below its soft ceiling
      def ready(index, fits:)
        fits ? @too_large.delete(index) : @too_large[index] += 1
      end

      # @return [Float] age in seconds before which the worker of this number is not recycled
      def age_s(index)
        times = @too_large.fetch(index, 0)
        times.zero? ? 0.0 : RecyclingBackoff.doubled(AGES_S, times - 1)
      end
    end
  end
end
