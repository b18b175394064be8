# frozen_string_literal: true

require_relative "../native"
require_relative "../telemetry/size"
require_relative "heap_cache"
require_relative "heap_reading"
require_relative "string_dedup"
require_relative "unmovable"

module Chaton
  module Memory
    # Puts the heap in order once, when the application has been loaded and before workers are forked: what boot left is
    # garbage and goes, or will be needed as long as the process lives. The latter is made old, so that minor
    # collections pass it over, and lies side by side, so that no new object in a worker is put between and copies the
    # page that all of them share. `docs/decisions/016-what-settle-does.md` has the figures.
    class Settle
      # An object is old when it has survived so many full collections.
      ROUNDS = 4

      # @param plan [Config::Plan]
      # @param log [Telemetry::Log]
      # @param gc [#start, #stat, #compact] Ruby's collector
      # @param process [#warmup, Object] Process of Ruby 3.3 and later, which does most of this by itself
      def initialize(plan, log:, gc: GC, process: Process)
        @plan = plan
        @log = log
        @gc = gc
        @process = process
      end

      # Does it, writes a line about it, and keeps the reading for the next start. In development without workers
      # nothing is done: code is loaded anew all the time, and nobody shares it.
      #
      # @return [void]
      def call
        return if !forks? && @plan.development?

        begun_s = now_s
        twins = StringDedup.new.merge
        pages = pages_of_heap
        compacted = tidy
        Native::Memory.purge
        report(begun_s, twins, pages, compacted)
        HeapCache.note(@plan, HeapReading.take, log: @log)
      end

      private

      def forks? = @plan.workers.positive?

      # @return [String] what became of compaction, and why
      def tidy
        # Ruby 3.3.8 crashes when objects are moved while a WeakMap has entries whose objects are dead. They go now.
        @gc.start
        reason = reason_not_to_compact || compact
        (ROUNDS - (reason ? 1 : 2)).times { @gc.start } unless @warm
        reason || "on"
      end

      def reason_not_to_compact
        return "off (memory { compact false })" unless @plan.memory.compact
        return "off (no workers are forked)" unless forks?

        "off (not on this platform)" unless @process.respond_to?(:warmup) || @gc.respond_to?(:compact)
      end

      # @return [String, nil] why it was not done
      def compact
        return "off (too much of sqlite3's must stay where it is)" unless Unmovable.hold(method(:move))

        "off (not on this platform)" unless @gc.respond_to?(:compact)
      rescue NotImplementedError
        "off (not on this platform)"
      end

      # A warm-up compacts, where that is possible, and makes old what it finds.
      def move
        @process.respond_to?(:warmup) ? @warm = @process.warmup : @gc.compact
      end

      def report(begun_s, twins, pages, compacted)
        stat = @gc.stat
        @log.info("memory settled", ms: ((now_s - begun_s) * 1e3).round, live_slots: stat.fetch(:heap_live_slots),
                                    old_objects: stat.fetch(:old_objects), heap_pages_before: pages,
                                    heap_pages: pages_of_heap, compact: compacted, **strings(twins))
      end

      def strings(twins)
        facts = { equal_strings: twins.found, equal_bytes: Telemetry::Size.of(twins.bytes), merged: twins.merged }
        twins.note ? facts.merge(merged_note: twins.note) : facts
      end

      # Pages with objects in them; those without are not copied by anybody.
      def pages_of_heap = @gc.stat.fetch(:heap_eden_pages) { @gc.stat.fetch(:heap_allocated_pages) }

      def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
