# frozen_string_literal: true

require_relative "../native"
require_relative "eden"

module Chaton
  module Memory
    # The memory of one process while it works: collects between units of work, gives free memory back when there is
    # nothing to do, says what each collection did. What is due when is decided in Rust; `docs/TUNING.md` has the rules.
    class Collector
      # Gives forked children back what was taken from Ruby.
      module FullMarksAfterFork
        # @return [Integer] as Process._fork
        def _fork = super.tap { |pid| GC.config(rgengc_allow_full_mark: true) if pid.zero? }
      end

      # The proportional share of shared pages is read from a table of all mappings: not for every line.
      PSS_EVERY_S = 10.0

      # @param plan [Config::Plan]
      # @param log [Telemetry::Log]
      def initialize(plan, log:)
        @settings = plan.memory
        @eden = Eden.new(plan, log: log)
        @log = log
        @pss_at_s = -PSS_EVERY_S
      end

      # From its return on, the process's memory is looked after. Call it before work is taken.
      #
      # @param native_pool [Native::Pool]
      # @return [self]
      def start(native_pool)
        @eden.grow
        keep_full_marks_out
        Native::Memory.background(true)
        @native = Native::Collector.start(native_pool, settings)
        self
      end

      # Writes a line for each collection since the last call; on the support thread, at most once a second.
      #
      # @return [void]
      def report(*)
        summaries, dropped = @native.summaries
        memory = memory_now
        summaries.each { |summary| @log.info("collection", **summary.compact, **memory) }
        return if dropped == (@dropped || 0)

        @log.warn("collections came faster than their lines could be written", dropped: dropped - (@dropped || 0))
        @dropped = dropped
      end

      # Does what was put off until there is nothing else to do; on the support thread.
      #
      # @return [void]
      def idle(*)
        @native.idle_work
        report if @settings.summary
      end

      # Ruby has wanted a full collection for long, and no unit of work ended; on the support thread.
      #
      # @return [void]
      def full(*) = @native.full

      # Collects everything and gives free memory back to the operating system.
      #
      # @return [void]
      def trim
        before = Native::Memory.resident(Process.pid)
        @native.trim
        after = Native::Memory.resident(Process.pid)
        @log.info("memory given back", rss_before: before, rss: after)
      end

      # @return [Hash{Symbol=>Object}] figures of collector and allocator; see `chaton status --json`
      def status = { **@native.stats, allocator: Native::Memory.allocator.slice(:name, :version) }

      private

      def settings
        { summary: @settings.summary, between: @settings.collect == :between, eden_slots: @eden.slots_max,
          eden_bytes: @eden.malloc_bytes, longlife: longlife, idle_full_ms: @settings.idle_full_ms.to_f,
          trim_idle_s: @settings.trim_idle_s.to_f }
      end

      # Infinite where Ruby alone decides.
      def longlife = (@settings.longlife_growth if between?) || Float::INFINITY

      def between? = @settings.collect == :between

      # Ruby 3.4 and later can be told to leave them to us.
      def keep_full_marks_out
        return unless GC.respond_to?(:config) && longlife.finite?

        GC.config(rgengc_allow_full_mark: false)
        # What the application forks has no collector of ours.
        Process.singleton_class.prepend(FullMarksAfterFork)
      end

      def memory_now
        now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        return { rss: Native::Memory.resident(Process.pid) }.compact if now_s - @pss_at_s < PSS_EVERY_S

        @pss_at_s = now_s
        (Native::Memory.process(Process.pid) || {}).slice(:rss, :pss)
      end
    end
  end
end
