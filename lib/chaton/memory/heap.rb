# frozen_string_literal: true

module Chaton
  module Memory
    # Translates the settings of `memory { }` to the variables of one version of Ruby. Pure.
    class Heap
      # With what the default eden begins, the smallest that is found: Rust makes it as large as the load needs within
      # two seconds (decision 047), while what a larger beginning takes stays taken.
      EDEN_BYTES = 4 << 20
      # The least default eden under a ceiling of the worker's memory.
      EDEN_BYTES_MIN = 1 << 20
      # Eden as a multiple of the live bytes where Ruby alone decides when to collect, so that nothing is found.
      EDEN_OF_LIVE = 1.5
      # The share of the ceiling that the default eden may take.
      EDEN_OF_LIMIT = 0.25
      # Bounds of the bytes of malloc that trigger a collection; Ruby's own limit ends at the lower one.
      MALLOC_BYTES = ((32 << 20)..(128 << 20))
      # The limit may grow to this multiple when collections free little.
      MALLOC_GROWTH = 2
      # The same for malloc of old objects, as a multiple: bounded, but above the limits at which we collect.
      OLD_MALLOC = 4
      # Ruby's full collections come at twice the growth at which ours come.
      OLD_OBJECTS = 2.0
      # Ruby gives pages back when more than this share of the slots is free after a collection: a found eden of 6.7
      # times the live objects keeps its pages.
      KEPT_FREE = 0.87
      # Bounds of the share of slots that must be free after a collection.
      FREE_RATIO = (0.05..0.9)
      # Ruby's own start value for each slot size, for sizes that are hardly used.
      POOL_SLOTS_MIN = 10_000
      # The same in bytes, for Ruby 4.1.
      POOL_BYTES_MIN = 2560 << 10

      # The settings: eden (:auto, bytes or a multiple), growth (of old objects, for a full collection; nil if Ruby
      # decides), limit (bytes of a process, or nil).
      Intent = Struct.new(:eden, :growth, :limit, keyword_init: true) do
        # @param settings [Object] eden, longlife_growth, collect and limit of `memory { }`
        def self.of(settings)
          is_off = settings.collect == :off
          new(eden: is_off && settings.eden == :auto ? EDEN_OF_LIVE : settings.eden,
              growth: (settings.longlife_growth unless is_off),
              limit: (settings.limit if settings.limit.is_a?(Integer)))
        end
      end

      # env: variables for the start; gc_config: arguments of GC.config in workers (3.4+); why: sentences.
      Shape = Struct.new(:env, :gc_config, :why, :eden_bytes, keyword_init: true)

      # @param version [String] of Ruby
      # @param reading [Hash{Symbol=>Object}, nil] see {HeapReading}; nil at the first start
      def self.shape(version, intent, reading) = new(version, intent, reading).shape

      def initialize(version, intent, reading)
        @version = version.split(".").first(2).map(&:to_i)
        @intent = intent
        @reading = reading
        @why = []
      end

      def shape
        return Shape.new(env: {}, gc_config: gc_config, why: unread) unless @reading

        @why << eden_line
        env = { **slots, **ratios, **malloc, **full_collections }
        config = gc_config
        Shape.new(env: env, gc_config: config, why: @why, eden_bytes: eden_bytes)
      end

      private

      def unread = [*@why, "the first start of an application runs with Ruby's own sizes"]

      def pools = @reading.fetch(:pools)

      def live_bytes = [pools.sum { |size, live| size * live }, 1].max

      def eden_bytes
        @eden_bytes ||=
          case @intent.eden
          when Integer then @intent.eden
          when Float then (@intent.eden * live_bytes).to_i
          else default_eden
          end
      end

      def default_eden
        return EDEN_BYTES unless @intent.limit

        (@intent.limit * EDEN_OF_LIMIT).to_i.clamp(EDEN_BYTES_MIN, EDEN_BYTES)
      end

      # Eden per live byte.
      def share = eden_bytes.fdiv(live_bytes)

      def with_eden(live) = (live * (1 + share)).ceil

      def slots
        if (@version <=> [3, 2]).negative?
          { "RUBY_GC_HEAP_INIT_SLOTS" => with_eden(pools.sum(&:last)).to_s }
        elsif @version == [3, 2]
          @why << "Ruby 3.2 has no setting for the size of its heap; the others apply"
          {}
        elsif (@version <=> [4, 1]).negative?
          of_pools
        else
          of_largest_pool
        end
      end

      # The variable holds for each slot size alone: a pool that stays small does not take what the largest one needs.
      def of_largest_pool
        bytes = pools.map { |size, live| size * with_eden(live) }.max
        { "RUBY_GC_HEAP_INIT_BYTES" => [bytes, POOL_BYTES_MIN].max.to_s }
      end

      def of_pools
        pools.each_with_index.to_h do |(_, live), index|
          ["RUBY_GC_HEAP_#{index}_INIT_SLOTS", [with_eden(live), POOL_SLOTS_MIN].max.to_s]
        end
      end

      # Keep the proportion when the live objects grow. Below the first ratio Ruby runs a full collection.
      def ratios
        goal = (share / (1 + share)).clamp(FREE_RATIO.begin, FREE_RATIO.end)
        @why << "after a collection #{(goal * 100).round} % of the slots should be free"
        most = @intent.eden == :auto ? [(1 + goal) / 2, KEPT_FREE].max : (1 + goal) / 2
        { "MIN" => goal / 2, "GOAL" => goal, "MAX" => most }
          .to_h { |name, ratio| ["RUBY_GC_HEAP_FREE_SLOTS_#{name}_RATIO", ratio.round(3).to_s] }
      end

      def malloc
        @why << "#{mib(malloc_bytes)} outside of slots trigger a collection, later at most " \
                "#{mib(malloc_bytes * MALLOC_GROWTH)}"
        { "RUBY_GC_MALLOC_LIMIT" => malloc_bytes.to_s,
          "RUBY_GC_MALLOC_LIMIT_MAX" => (malloc_bytes * MALLOC_GROWTH).to_s }
      end

      def malloc_bytes
        @intent.eden.is_a?(Integer) ? eden_bytes : eden_bytes.clamp(MALLOC_BYTES.begin, MALLOC_BYTES.end)
      end

      def full_collections
        return ruby_decides unless @intent.growth

        factor = (OLD_OBJECTS * (1 + @intent.growth)).round(2)
        old = malloc_bytes * OLD_MALLOC
        @why << "full collections run between units of work; Ruby's own come when old objects are #{factor} " \
                "times as many, or hold #{mib(old)} to #{mib(old * MALLOC_GROWTH)} more"
        { "RUBY_GC_HEAP_OLDOBJECT_LIMIT_FACTOR" => factor.to_s, "RUBY_GC_OLDMALLOC_LIMIT" => old.to_s,
          "RUBY_GC_OLDMALLOC_LIMIT_MAX" => (old * MALLOC_GROWTH).to_s }
      end

      def ruby_decides
        @why << "full collections come when Ruby wants them"
        {}
      end

      # {Collector} sets it in workers, after the objects of boot have become old.
      def gc_config
        return {} if @intent.growth.nil? || (@version <=> [3, 4]).negative?

        @why << "workers run with GC.config(rgengc_allow_full_mark: false) while they have work"
        { rgengc_allow_full_mark: false }
      end

      def eden_line
        from = case @intent.eden
               when Integer then "as configured"
               when Float then "#{@intent.eden} times the live bytes"
               else "to begin with"
               end
        "eden #{mib(eden_bytes)}: #{from}; #{count(pools.sum(&:last))} objects, #{mib(live_bytes)}, are alive"
      end

      def mib(bytes) = format("%.1f MiB", bytes.fdiv(1 << 20))

      def count(number) = number.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",")
    end
  end
end
