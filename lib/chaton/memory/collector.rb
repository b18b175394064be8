# frozen_string_literal: true

require_relative "../native"
require_relative "eden"

module Chaton
  module Memory
    # Collects garbage between units of work, returns free memory to the system when the process is idle, and logs each
    # collection. Rust decides when; `docs/TUNING.md` has the rules.
    class Collector
      # Allows Ruby to run full collections in children that the application forks, which have no collector of ours.
      module FullMarksAfterFork
        # @return [Integer] as Process._fork
        def _fork = super.tap { |pid| GC.config(rgengc_allow_full_mark: true) if pid.zero? }
      end

      # The kernel walks all mappings to compute the PSS, so it is not read for every line.
      PSS_EVERY_S = 10.0

      def initialize(plan, log:)
        @settings = plan.memory
        @eden = Eden.new(plan, log: log)
        @log = log
        @pss_at_s = -PSS_EVERY_S
      end

      # Starts collecting. Call it before work is taken.
      def start(native_pool)
        @eden.grow
        disable_full_marks
        Native::Memory.background(true)
        @native = Native::Collector.start(native_pool, @eden.slots_max, @eden.bytes, @eden.limit_bytes)
        self
      end

      # Logs a line for each collection since the last call. Called on the support thread, at most once a second.
      def report(*)
        summaries, dropped = @native.summaries
        memory = memory_now
        summaries.each { |summary| @log.info("collection", **summary.compact, **memory) }
        return if dropped == (@dropped || 0)

        @log.warn("collections were not logged because there were too many", dropped: dropped - (@dropped || 0))
        @dropped = dropped
      end

      # Collects and trims as far as that was postponed until the process is idle. Called on the support thread.
      def idle(*)
        @native.idle_work
        keep
        report if @settings.summary
      end

      # Keeps what was found out for the next worker and the next start.
      def keep = @eden.keep(@native.stats.fetch(:eden_bytes))

      # Runs the full collection that Ruby has wanted while no unit of work ended. Called on the support thread.
      def full(*) = @native.full

      # Collects everything and returns free memory to the operating system.
      def trim
        before = Native::Memory.resident(Process.pid)
        @native.trim
        after = Native::Memory.resident(Process.pid)
        @log.info("memory returned to the system", rss_before: before, rss: after)
      end

      # @return [Hash{Symbol=>Object}] figures of collector and allocator; see `chaton status --json`
      def status = { **@native.stats, allocator: Native::Memory.allocator.slice(:name, :version) }

      private

      # Ruby 3.4 and later can leave full collections to us.
      def disable_full_marks
        return unless GC.respond_to?(:config) && @settings.longlife_growth

        GC.config(rgengc_allow_full_mark: false)
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
