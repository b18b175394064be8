# frozen_string_literal: true

module Chaton
  module Memory
    # Figures of Ruby's heap, from which the next start derives its sizes.
    module HeapReading
      # @return [Hash{Symbol=>Object}] live_slots, old_objects, heap_pages, slots_per_page; pools:
      #   for each slot size its bytes and its live objects. Useful right after a collection only.
      def self.take
        stat = GC.stat
        { live_slots: stat.fetch(:heap_live_slots), old_objects: stat.fetch(:old_objects),
          heap_pages: stat.fetch(:heap_allocated_pages) { stat.fetch(:heap_eden_pages, 0) },
          slots_per_page: GC::INTERNAL_CONSTANTS.fetch(:HEAP_PAGE_OBJ_LIMIT) { average(stat) }, pools: pools(stat) }
      end

      # Ruby 3.1 has one slot size. Before 3.4 a pool has no count of live slots.
      def self.pools(stat)
        unless GC.respond_to?(:stat_heap)
          return [[GC::INTERNAL_CONSTANTS.fetch(:RVALUE_SIZE, 40), stat.fetch(:heap_live_slots)]]
        end

        GC.stat_heap.values.map do |pool|
          live = pool.fetch(:heap_live_slots) do
            pool.fetch(:total_allocated_objects) - pool.fetch(:total_freed_objects)
          end
          [pool.fetch(:slot_size), live]
        end
      end

      # Ruby 4.1 has pages of several numbers of slots.
      def self.average(stat) = stat.fetch(:heap_available_slots) / [stat.fetch(:heap_eden_pages), 1].max
      private_class_method :pools, :average
    end
  end
end
