# frozen_string_literal: true

require_relative "../telemetry/size"
require_relative "event_loop"

module Chaton
  class Supervisor
    # Says in the log what is done about memory, and why.
    class CeilingReport
      # What a line about a worker's memory names.
      PARTS = %i[rss pss private shared].freeze
      # What the board may say about its heap and its allocator: counts, and bytes.
      COUNTS = %i[live_slots old_objects heap_pages].freeze
      SIZES = %i[allocator_active allocator_resident allocator_retained].freeze

      # In which order the two come and go.
      ORDERS = {
        replace_first: "a new one is started first",
        retire_first: "there is no room for two, so it leaves first",
        only_one: "its groups know only one of its name, so it leaves first"
      }.freeze

      # @param log [Telemetry::Log]
      def initialize(log)
        @log = log
        @cramped = false
      end

      # @param child [Child]
      # @param reason [String]
      # @return [void]
      def relieved(child, reason)
        @log.info("worker is told to collect and trim: #{reason}", **facts(child))
      end

      # @param child [Child]
      # @param decision [CeilingPolicy::Recycle]
      # @param usage [Hash{Symbol=>Integer}]
      # @return [void]
      def begins(child, decision, usage)
        @log.info("worker is being recycled: #{decision.reason}; #{ORDERS.fetch(decision.how)}",
                  **facts(child), **sizes(usage, PARTS))
      end

      # @param recycling [Recycling]
      # @return [void]
      def recycled(recycling)
        what = recycling.at_once? ? "worker replaced after it was stopped at once" : "worker recycled"
        @log.info("#{what}: #{recycling.reason}", **facts(recycling.child), **facts_of_next(recycling))
      end

      # @param recycling [Recycling]
      # @param rest_s [Float] how long nobody is replaced now
      # @return [void]
      def abandoned(recycling, rest_s:)
        stays = recycling.child.dead? ? "its place is empty" : "the old one goes on serving"
        @log.error("recycling abandoned: the new worker did not come up; #{stays}", **facts(recycling.child),
                                                                                    next_in_s: rest_s)
      end

      # @param child [Child]
      # @param reason [String]
      # @param usage [Hash{Symbol=>Integer}]
      # @param gauges [Hash{Symbol=>Object}] its place on the board
      # @return [void]
      def hard(child, reason, usage, gauges)
        # Nothing was written there where nobody counts.
        known = gauges.reject { |_, value| value.is_a?(Integer) && value.zero? }
        @log.error("worker stopped at once: #{reason}. Its threads' backtraces follow: look for what holds so much, " \
                   "see what allocates with `chaton trace`, or raise the ceiling",
                   **facts(child), **sizes(usage, PARTS), **known.slice(*COUNTS), **sizes(known, SIZES))
      end

      # @param child [Child]
      # @param usage [Hash{Symbol=>Integer}]
      # @param soft [Integer] bytes
      # @param rest_s [Float] how old it must become
      # @return [void]
      def too_large(child, usage, soft, rest_s:)
        @log.warn("worker is above its soft ceiling as soon as it is ready: replacing it would not help, so it is " \
                  "left alone for now; raise `limit` in `memory { }`",
                  **facts(child), **sizes(usage, PARTS), soft: size(soft), not_before_s: rest_s)
      end

      # Says it once as long as it lasts.
      #
      # @param total [Integer] bytes
      # @param limit [Integer, nil] bytes
      # @param is [Boolean]
      # @return [void]
      def cramped(total, limit, is:)
        if is && !@cramped
          @log.warn("all processes together are above limit_tree, and none has grown since it was ready: replacing " \
                    "one would not help. Raise limit_tree, or run fewer workers",
                    total: size(total), limit: size(limit))
        end
        @cramped = is
      end

      private

      def facts(child) = { worker: child.index, pid: child.pid.to_i }

      def facts_of_next(recycling)
        pid = recycling.seat.child&.pid
        { successor: pid, took_s: (EventLoop.now_s - recycling.begun_at_s).round(3) }.compact
      end

      def sizes(figures, names) = figures.slice(*names).transform_values { |bytes| size(bytes) }

      def size(bytes) = Telemetry::Size.of(bytes)
    end
  end
end
