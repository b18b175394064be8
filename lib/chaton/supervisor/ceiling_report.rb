# frozen_string_literal: true

require_relative "../telemetry/size"
require_relative "event_loop"

module Chaton
  class Supervisor
    # Logs what is done about memory, and why.
    class CeilingReport
      # Figures of a worker's memory that a line contains.
      PARTS = %i[rss pss private shared].freeze
      # Figures of its heap and its allocator on the scoreboard: counts, and bytes.
      COUNTS = %i[live_slots old_objects heap_pages].freeze
      SIZES = %i[allocator_active allocator_resident allocator_retained].freeze

      # In which order the old and the new worker exit and start.
      SEQUENCES = {
        replace_first: "a new one is started first",
        retire_first: "there is no room for two, so it exits first",
        only_one: "its consumer groups allow only one of its name, so it exits first"
      }.freeze

      def initialize(log)
        @log = log
        @cramped = false
      end

      def trims(child, reason)
        @log.info("worker is asked to collect and trim: #{reason}", **facts(child))
      end

      # @param usage [Hash{Symbol=>Integer}]
      def begins(child, decision, usage)
        @log.info("worker is being recycled: #{decision.reason}; #{SEQUENCES.fetch(decision.how)}",
                  **facts(child), **sizes(usage, PARTS))
      end

      # @param how [Symbol] see SEQUENCES
      def replaces(child, reason, how)
        @log.info("worker is being replaced, #{reason}; #{SEQUENCES.fetch(how)}", **facts(child))
      end

      # @param recycling [Recycling] that has ended
      def recycled(recycling)
        event = recycling.at_once? ? "worker replaced after it was stopped at once" : "worker recycled"
        @log.info("#{event}: #{recycling.reason}", **facts(recycling.child), **facts_of_next(recycling))
      end

      # @param pause_s [Float] time until a worker is recycled again
      def abandoned(recycling, pause_s:)
        stays = recycling.child.dead? ? "its slot is empty" : "the old one goes on serving"
        @log.error("recycling abandoned: the new worker did not come up; #{stays}", **facts(recycling.child),
                                                                                    next_in_s: pause_s)
      end

      # @param usage [Hash{Symbol=>Integer}]
      # @param gauges [Hash{Symbol=>Object}] its row on the scoreboard
      def stopped(child, reason, usage, gauges)
        # Zero means that the figure is not collected.
        known = gauges.reject { |_, value| value.is_a?(Integer) && value.zero? }
        @log.error("worker stopped at once: #{reason}. Its threads' backtraces follow: look for code that holds much " \
                   "memory, find what allocates with `chaton profile`, or raise the ceiling",
                   **facts(child), **sizes(usage, PARTS), **known.slice(*COUNTS), **sizes(known, SIZES))
      end

      # @param usage [Hash{Symbol=>Integer}]
      # @param soft [Integer] bytes
      # @param rest_s [Float] age before which it is not recycled
      def too_large(child, usage, soft, rest_s:)
        @log.warn("worker is above its soft ceiling as soon as it is ready: replacing it would not help, so it is " \
                  "left alone for now; raise `limit` in `memory { }`",
                  **facts(child), **sizes(usage, PARTS), soft: size(soft), not_before_s: rest_s)
      end

      # Logs once per period in which it holds.
      #
      # @param total [Integer] bytes
      # @param limit [Integer, nil] bytes
      # @param cramped [Boolean] see {CeilingPolicy#cramped?}
      def cramped(total, limit, cramped)
        if cramped && !@cramped
          @log.warn("all processes together are above limit_tree, and none has grown since it was ready: replacing " \
                    "one would not help. Raise limit_tree, or run fewer workers",
                    total: size(total), limit: size(limit))
        end
        @cramped = cramped
      end

      private

      def facts(child) = { worker: child.index, pid: child.pid.to_i }

      def facts_of_next(recycling)
        pid = recycling.slot.child&.pid
        { successor: pid, took_s: (EventLoop.now_s - recycling.begun_at_s).round(3) }.compact
      end

      def sizes(figures, names) = figures.slice(*names).transform_values { |bytes| size(bytes) }

      def size(bytes) = Telemetry::Size.of(bytes)
    end
  end
end
