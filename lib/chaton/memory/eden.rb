# frozen_string_literal: true

require_relative "heap"
require_relative "heap_reading"

module Chaton
  module Memory
    # The budget of slots and bytes between two collections, from the settings and the live objects of this process.
    class Eden
      # Bytes of malloc between two collections at least: the upper end of Ruby's own limit.
      MALLOC_BYTES_MIN = 32 << 20
      # If less than this share of eden is free, the heap is grown.
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

      # @return [Integer] slots that may be filled between two collections; 0: as many as Ruby allows
      def slots_max = @intent.eden == :auto ? 0 : [slots, 1].max

      # @return [Integer] bytes of malloc between two collections
      def malloc_bytes = @intent.eden == :auto ? [@bytes, MALLOC_BYTES_MIN].max : @bytes

      # Grows the heap to the size it would have with known sizes: at the first start, and with Ruby 3.2, which has no
      # setting for it. Fills free slots (of the smallest size) once with objects and drops them.
      def grow
        return if @plan.development? || @plan.memory.collect == :off

        missing = slots - room
        return if missing < slots * (1 - ENOUGH)

        fill(missing)
        # The new objects are dead before they become old.
        GC.start
        @log.debug("the heap was grown", slots: missing)
      end

      private

      def slots = @bytes / @reading.fetch(:pools).first.first

      def room
        stat = GC.stat
        pages = stat.fetch(:heap_allocatable_pages, 0) * @reading.fetch(:slots_per_page)
        free = stat.fetch(:heap_available_slots) - stat.fetch(:heap_live_slots)
        # Bytes in Ruby 4.1, of slots of any size.
        bytes = stat.fetch(:heap_allocatable_bytes, 0) / @reading.fetch(:pools).first.first
        free + pages + stat.fetch(:heap_allocatable_slots, 0) + bytes
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
