# frozen_string_literal: true

require "json"
require_relative "../native"
require_relative "event_loop"

module Chaton
  class Supervisor
    # The answer to `chaton status` for a supervised server, from the supervisor's own state and the scoreboard; no
    # worker is asked.
    class ClusterStatus
      def initialize(plan, scoreboard, forkers, ceilings)
        @plan = plan
        @scoreboard = scoreboard
        @forkers = forkers
        @ceilings = ceilings
        @readiness = Readiness.new(plan, scoreboard)
        @started_at_s = EventLoop.now_s
      end

      # @param restart [Hash, nil] the current or last phased restart
      def to_h(state:, listen:, worker_set:, restart:)
        now_s = EventLoop.now_s
        readiness = @readiness.of(report(state: state, worker_set: worker_set))
        children = worker_set.children.zip(readiness.delete(:workers)).sort_by { |child, _| child.index }
        {
          pid: Process.pid, mode: "cluster", state: state, **readiness, tag: @plan.tag, environment: @plan.environment,
          uptime_s: (now_s - @started_at_s).round(3), listen: listen, restart: restart, store: @plan.jobs&.store_shown,
          memory: @ceilings.to_h(now_s), preloaders: @forkers.pids,
          workers: children.map { |child, reasons| worker(child, reasons, now_s) },
          given_up: worker_set.worker_slots.filter_map { |slot| given_up(slot) if slot.given_up },
          topics: @scoreboard.topics, event_streams: @scoreboard.event_streams
        }
      end

      # @return [Hash{Symbol=>Object}] for the admin endpoint, which reads the scoreboard itself
      def report(state:, worker_set:)
        workers = worker_set.children.map do |child|
          { worker: child.index, slot: child.scoreboard_slot, pid: child.pid, state: child.state, roles: child.roles }
        end
        given_up = worker_set.worker_slots.select(&:given_up).map(&:index)
        { state: state, pid: Process.pid, preloaders: @forkers.pids, workers: workers, exits: worker_set.exits,
          deaths: worker_set.deaths,
          given_up: given_up.map { |index| { worker: index, roles: @plan.roles_of(index) } } }
      end

      private

      def given_up(slot) = { worker: slot.index, reason: slot.given_up }

      def worker(child, reasons, now_s)
        gauges = @scoreboard.read(child.scoreboard_slot)
        gauges.merge(worker: child.index, roles: child.roles, pid: child.pid, state: child.state,
                     generation: child.forker.generation, age_s: (now_s - child.forked_at_s).round(3),
                     ready: reasons.empty?, unready: reasons, memory: @ceilings.of(child, now_s))
      end
    end

    # Whether a server and its workers do their work, for `chaton status`: by the rules of `/ready` and of the page
    # (`crates/admin/src/health.rs`), so that the three never differ.
    class Readiness
      def initialize(plan, scoreboard)
        @settings = JSON.generate(plan.admin_document(store: nil))
        @scoreboard = scoreboard
      end

      # @param report [Hash{Symbol=>Object}] as the admin endpoint gets it
      # @return [Hash{Symbol=>Object}] :ready and :unready, the reasons why not; and :workers, the reasons of each
      #   worker of the report
      def of(report)
        found = JSON.parse(Native::Admin.readiness(@settings, JSON.generate(report), @scoreboard))
        { ready: found["status"] == "ready", unready: found["reasons"], workers: found["workers"] }
      end
    end
  end
end
