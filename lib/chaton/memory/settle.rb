# frozen_string_literal: true

require_relative "../native"
require_relative "heap_cache"
require_relative "heap_reading"
require_relative "pinned_objects"

module Chaton
  module Memory
    # Tidies the heap once, after the application has been loaded and before workers are forked. Garbage of boot is
    # collected. All other objects become old, so that minor collections skip them, and are compacted, so that new
    # objects of a worker do not lie between them, where they would cause copies of shared pages. `docs/decisions/016-
    # what-settle-does.md` has the figures.
    class Settle
      # Objects become old after so many full collections.
      ROUNDS = 4
      # Ruby's own method, which a subclass of the application cannot replace.
      SCAN = String.instance_method(:valid_encoding?)

      # Frees what a supervisor needed to begin, before it forks.
      def self.of_supervisor(plan)
        Process.respond_to?(:warmup) && plan.memory.compact ? Process.warmup : GC.start
        free
      end

      # Returns free memory to the system.
      def self.free
        Native::Memory.purge
        Native::Memory.release_main_stack
      end

      # @param gc [#start, #stat, #compact] Ruby's collector
      # @param process [#warmup, Object] Process; in Ruby 3.3 and later it does most of this
      def initialize(plan, log:, gc: GC, process: Process)
        @plan = plan
        @log = log
        @gc = gc
        @process = process
      end

      # Settles, logs a line, and stores the reading for the next start. Does nothing in development without workers,
      # where code is reloaded and not shared.
      def call
        return if !forks? && @plan.development?

        begun_s = now_s
        pages = heap_pages
        compacted = tidy
        scan_strings if forks? && !@warm
        Settle.free
        report(begun_s, pages, compacted)
        HeapCache.store(@plan, HeapReading.take, log: @log)
      end

      private

      def forks? = @plan.workers.positive?

      # @return [String] "on", or "off" with the reason, for compaction
      def tidy
        # Ruby 3.3.8 crashes when compacting while a WeakMap has entries of dead objects: collect them first.
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
        return "off (too many objects of sqlite3 must be pinned)" unless PinnedObjects.pin_during(method(:move))

        "off (not on this platform)" unless @gc.respond_to?(:compact)
      rescue NotImplementedError
        "off (not on this platform)"
      end

      # Process.warmup compacts, where that is possible, makes all objects old and scans the Strings.
      def move
        @process.respond_to?(:warmup) ? @warm = @process.warmup : @gc.compact
      end

      # Ruby notes a String's encoding in it at its first use, which in a worker would copy a shared page.
      def scan_strings = ObjectSpace.each_object(String) { |string| SCAN.bind_call(string) }

      def report(begun_s, pages, compacted)
        stat = @gc.stat
        @log.debug("memory settled", ms: ((now_s - begun_s) * 1e3).round, live_slots: stat.fetch(:heap_live_slots),
                                     old_objects: stat.fetch(:old_objects), heap_pages_before: pages,
                                     heap_pages: heap_pages, compact: compacted)
      end

      # Pages with objects in them.
      def heap_pages = @gc.stat.fetch(:heap_eden_pages) { @gc.stat.fetch(:heap_allocated_pages) }

      def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
