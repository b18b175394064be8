# frozen_string_literal: true

require_relative "event_loop"

module Chaton
  class Supervisor
    # The answer to `chaton status` for a supervised server, from what the
    # supervisor knows and what workers publish on the board; no worker is asked.
    class Status
      # @param plan [Chaton::Config::Plan]
      # @param board [#read]
      # @param ceilings [Ceilings]
      def initialize(plan, board, ceilings)
        @plan = plan
        @board = board
        @ceilings = ceilings
        @started_at_s = EventLoop.now_s
      end

      # @param state [Symbol]
      # @param listen [Array<String>]
      # @param fleet [Fleet]
      # @param restart [Hash, nil] the phased restart that runs or ran last
      # @return [Hash{Symbol=>Object}]
      def to_h(state:, listen:, fleet:, restart:)
        now_s = EventLoop.now_s
        {
          pid: Process.pid, mode: "cluster", state: state, tag: @plan.tag, environment: @plan.environment,
          uptime_s: (now_s - @started_at_s).round(3), listen: listen, restart: restart, store: @plan.jobs&.store_shown,
          memory: @ceilings.to_h(now_s), workers: fleet.children.sort_by(&:index).map { |child| worker(child, now_s) },
          given_up: fleet.seats.select(&:given_up).map { |seat| { worker: seat.index, reason: seat.given_up } }
        }
      end

      private

      def worker(child, now_s)
        gauges = @board.read(child.slot)
        gauges.merge(worker: child.index, roles: child.roles, pid: child.pid, state: child.state,
                     generation: child.origin.generation, age_s: (now_s - child.forked_at_s).round(3),
                     ready: child.ready? && ready?(child, gauges), memory: @ceilings.of(child, now_s))
      end

      # A full queue is busy, not dead: it only says that others should be asked.
      def ready?(child, gauges)
        return true unless child.roles.include?(:web)

        gauges.fetch(:accepting, false) && gauges.fetch(:queue_age_ms, 0) < @plan.queue_age_s * 1000
      end
    end
  end
end
