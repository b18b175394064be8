# frozen_string_literal: true

require_relative "heap"
require_relative "heap_reading"

module Chaton
  module Memory
    # How much may be allocated between two collections in this process, from its settings and from what is alive in it.
    class Eden
      # What malloc may give out between two collections at least: where Ruby's own limit ends.
      MALLOC_BYTES_MIN = 32 << 20
      # Below this share of the eden that is wanted, the heap is made larger.
      ENOUGH = 0.6

      # @param plan [Config::Plan]
      # @param log [Telemetry::Log]
      def initialize(plan, log:)
        @plan = plan
        @log = log
        @intent = Heap::Intent.of(plan.memory)
        @reading = HeapReading.take
        @bytes = Heap.shape(RUBY_VERSION, @intent, @reading).eden_bytes
      end

      # @return [Integer] slots that may be filled between two collections; 0: as many as Ruby lets us
      def slots_max = @intent.eden == :auto ? 0 : [slots, 1].max

      # @return [Integer] bytes that malloc may give out between two collections
      def malloc_bytes = @intent.eden == :auto ? [@bytes, MALLOC_BYTES_MIN].max : @bytes

      # Makes the heap as large as it would have been, had it been started with the sizes that are known by now: the
      # first start, and Ruby 3.2, which has no setting for it. Fills the heap once and lets go of it. Where slots have
      # several sizes, only those of the smallest are filled.
      #
      # @return [void]
      def grow
        return if @plan.development? || @plan.memory.collect == :off

        missing = slots - room
        return if missing < slots * (1 - ENOUGH)

        fill(missing)
        # Old by now is only what was old before.
        GC.start
        @log.debug("the heap was made larger", slots: missing)
      end

      private

      def slots = @bytes / @reading.fetch(:pools).first.first

      def room
        stat = GC.stat
        pages = stat.fetch(:heap_allocatable_pages, 0) * @reading.fetch(:slots_per_page)
        free = stat.fetch(:heap_available_slots) - stat.fetch(:heap_live_slots)
        free + pages + stat.fetch(:heap_allocatable_slots, 0)
      end

      def fill(count)
        was_off = GC.disable
        Array.new(count) { Object.new }
      ensure
        GC.enable unless was_off
      end
    end
  end
end
