# frozen_string_literal: true

module Chaton
  module Memory
    # What is in Ruby's heap: the figures from which the next start derives its shape.
    module HeapReading
      # @return [Hash{Symbol=>Object}] ruby: its version; live_slots, old_objects, heap_pages, slots_per_page; pools:
      #   for each size of slots its bytes and how many are alive. Of use after a collection only.
      def self.take
        stat = GC.stat
        { ruby: RUBY_VERSION, live_slots: stat.fetch(:heap_live_slots), old_objects: stat.fetch(:old_objects),
          heap_pages: stat.fetch(:heap_allocated_pages) { stat.fetch(:heap_eden_pages, 0) },
          slots_per_page: GC::INTERNAL_CONSTANTS.fetch(:HEAP_PAGE_OBJ_LIMIT, 0), pools: pools(stat) }
      end

      # Ruby 3.1 has one size. Before 3.4 a pool does not say what is alive in it, only what came and went.
      def self.pools(stat)
        unless GC.respond_to?(:stat_heap)
          return [[GC::INTERNAL_CONSTANTS.fetch(:RVALUE_SIZE, 40), stat.fetch(:heap_live_slots)]]
        end

        GC.stat_heap.values.map do |pool|
          [pool.fetch(:slot_size), pool.fetch(:heap_live_slots) { came_and_stayed(pool) }]
        end
      end

      def self.came_and_stayed(pool) = pool.fetch(:total_allocated_objects) - pool.fetch(:total_freed_objects)
      private_class_method :pools, :came_and_stayed
    end
  end
end
