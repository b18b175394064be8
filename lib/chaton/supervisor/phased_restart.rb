# frozen_string_literal: true

require_relative "event_loop"

module Chaton
  class Supervisor
    # One phased restart: replaces the worker in every slot by one of the new code, slot by slot, and goes back to the
    # old code when the new one does not come up.
    #
    #   loading → choosing [→ leaving] → booting → draining → choosing → … → done | abandoned
    #
    # An old worker is asked to stop only when its successor is ready, and the next slot follows only when the old
    # worker has exited: there is never more than one process above the configured number. Where both would be the same
    # member of a consumer group (`retires_first?`), the old one exits before its successor starts. It only waits for
    # events of the workers and the preloader, which have deadlines of their own.
    class PhasedRestart
      # @return [Symbol] :running, :done or :abandoned
      attr_reader :state
      # @return [String, nil] why it was abandoned
      attr_reader :reason

      # @param target [Preloader, InProcessForker] the new forker
      # @param first [#call] Child → whether it is to be replaced before others
      # @yield when it is over, either way
      def initialize(worker_set, target, log:, first: ->(_) { false }, &on_end)
        @on_end = on_end
        @first = first
        @worker_set = worker_set
        @target = target
        @previous = worker_set.forker
        @log = log
        @state = :running
        @step = :loading
        log.info("phased restart begins", generation: target.generation)
      end

      # Goes as far as it can without waiting.
      def tick(_now_s)
        nil while @state == :running && advance
      end

      def running? = @state == :running

      def to_h
        { state: @state, step: @step, generation: @target.generation, reason: @reason }
      end

      private

      # Each step returns whether anything changed.
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
        left = @worker_set.worker_slots.reject { |slot| slot.forker.equal?(goal) }
        @slot = left.find { |slot| slot.child && @first.call(slot.child) } || left.first
        return finish unless @slot
        return false unless @worker_set.room?

        @slot.child && @worker_set.retires_first?(@slot) ? stop_old_worker : start_successor
      end

      # The slot is vacated first, so that the worker's end does not count as a death.
      def stop_old_worker
        @replaced = @slot.child
        @slot.vacate
        @replaced.stop(EventLoop.now_s, purpose: :restart)
        to(:leaving)
      end

      def leave
        return false unless @replaced.dead? && @worker_set.room?

        @worker_set.worker_slots.include?(@slot) ? start_successor : to(:choosing)
      end

      def start_successor
        @child = @worker_set.start_successor(@slot, goal)
        to(:booting)
      end

      def boot
        # TTOU has removed the slot in the meantime.
        return to(:choosing) unless @worker_set.worker_slots.include?(@slot)
        return boot_failed if @child.dead?
        return false unless @child.ready?

        @replaced = @slot.promote
        @replaced&.stop(EventLoop.now_s, purpose: :restart)
        to(:draining)
      end

      def drain
        to(:choosing) if @replaced.nil? || @replaced.dead?
      end

      def boot_failed
        return abandon(@child.reason || "worker #{@slot.index} did not become ready") unless @reason

        # On the way back: the worker that serves here stays, and its replacement will run the old code.
        @slot.forker = @previous
        to(:choosing)
      end

      # The forker that all slots are to have: the new one, or the old one once the restart is abandoned.
      def goal = @reason ? @previous : @target

      def abandon(reason)
        @reason = reason || "the new code did not come up"
        @log.error("phased restart abandoned; the old code goes on serving. Fix the cause and restart again",
                   generation: @target.generation, reason: @reason)
        to(:choosing)
      end

      def finish
        goal.equal?(@target) ? complete : @target.retire
        @state = @reason ? :abandoned : :done
        @on_end&.call
        false
      end

      def complete
        @worker_set.forker = @target
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
