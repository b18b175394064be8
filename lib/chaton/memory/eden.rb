# frozen_string_literal: true

require_relative "../native"
require_relative "heap"
require_relative "heap_cache"
require_relative "heap_reading"

module Chaton
  module Memory
    # The budget of slots and bytes between two collections: as configured, or a beginning from which Rust finds it.
    # What it found is kept beside the heap's reading, so that the next worker and the next start begin with it.
    class Eden
      # A size is kept when it differs from the kept one by more than this part.
      WORTH_KEEPING = 0.25
      # If less than this share of eden is free, the heap is grown.
      ENOUGH = 0.6

      # @param cache [HeapCache] of the server
      def initialize(plan, log:, cache: HeapCache.of(plan))
        @plan = plan
        @log = log
        @cache = cache
        @intent = Heap::Intent.of(plan.memory)
        @reading = HeapReading.take
        @bytes = Heap.shape(RUBY_VERSION, @intent, @reading).eden_bytes
      end

      # @return [Integer, nil] slots that may be filled between two collections; nil: as many as Rust finds best
      def slots_max = auto? ? nil : [slots, 1].max

      # @return [Integer] bytes of malloc between two collections, or of the eden to begin with
      def bytes = (kept if auto?) || @bytes

      # @return [Integer, nil] the ceiling of this process, or its share of the container's
      def limit_bytes
        return @intent.limit if @intent.limit

        container = Native::Memory.cgroup&.fetch(:limit)
        container && (container / [@plan.workers, 1].max)
      end

      # Keeps the eden that was found. Never raises.
      def keep(found)
        return if !auto? || @plan.development? || ((kept || @bytes) - found).abs <= found * WORTH_KEEPING

        @cache.keep_eden(roles, found)
        @kept = found
      end

      # Grows the heap to the size it would have with known sizes: at the first start, and with Ruby 3.2, which has no
      # setting for it. Fills free slots (of the smallest size) once with objects and drops them. Rust makes room for an
      # eden that it finds.
      def grow
        return if @plan.development? || auto? || @plan.memory.collect == :off

        missing = slots - room
        return if missing < slots * (1 - ENOUGH)

        # The slots that are free are filled first.
        fill(slots)
        # The new objects are dead before they become old.
        GC.start
        @log.debug("the heap was grown", slots: missing)
      end

      private

      def auto? = @intent.eden == :auto

      # Web requests, jobs and records allocate differently.
      def roles = @plan.roles.sort.join("-")

      def kept = @kept ||= @cache.read&.reading&.dig(:eden, roles.to_sym)

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
