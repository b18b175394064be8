# frozen_string_literal: true

module Chaton
  module Memory
    # Compiles settings of intent to the variables of one version of Ruby. Pure: what it is given is all it knows.
    class Heap
      # Of live, where nobody says how large eden is: measured, frequent collections are the bill, and an eden several
      # times as large as what is alive costs more in fresh pages than it saves.
      EDEN_OF_LIVE = 1.5
      # Bounds of an eden that nobody chose.
      EDEN_BYTES = ((4 << 20)..(256 << 20))
      # The least of one that has to fit under a ceiling.
      EDEN_BYTES_MIN = 1 << 20
      # Of a worker's ceiling, what eden may take.
      EDEN_OF_LIMIT = 0.25
      # What may be allocated outside of slots before it causes a collection; the lower bound is where Ruby's own ends.
      MALLOC_BYTES = ((32 << 20)..(128 << 20))
      # A limit grows to this multiple of itself when collections find little.
      MALLOC_GROWTH = 2
      # For what old objects hold outside of slots: far off where full collections are ours to call, yet bounded.
      OLD_MALLOC = 4
      # A full collection by Ruby comes at twice the growth at which ours comes.
      OLD_OBJECTS = 2.0
      # Of all slots, what must be free after a collection: the share of eden within these.
      FREE_RATIO = (0.05..0.9)
      # Slots of a size that is hardly used; Ruby's own start.
      POOL_SLOTS_MIN = 10_000

      # What was asked for: eden (:auto, bytes or a multiple), growth (of old objects at which a full collection is
      # called; nil where Ruby calls it), limit (bytes of a process, or nil).
      Intent = Struct.new(:eden, :growth, :limit, keyword_init: true) do
        # @param settings [Object] eden, longlife_growth, collect and limit of `memory { }`
        # @return [Intent]
        def self.of(settings)
          new(eden: settings.eden, growth: (settings.longlife_growth unless settings.collect == :off),
              limit: (settings.limit if settings.limit.is_a?(Integer)))
        end
      end

      # env: variables for the start; gc_config: what GC.config gets in workers (3.4+); why: sentences.
      Shape = Struct.new(:env, :gc_config, :why, :eden_bytes, keyword_init: true)

      # @param version [String] of Ruby
      # @param intent [Intent]
      # @param reading [Hash{Symbol=>Object}, nil] see {HeapReading}; nil: nothing is known yet
      # @return [Shape]
      def self.shape(version, intent, reading) = new(version, intent, reading).shape

      # @param version [String]
      # @param intent [Intent]
      # @param reading [Hash{Symbol=>Object}, nil]
      def initialize(version, intent, reading)
        @version = version.split(".").first(2).map(&:to_i)
        @intent = intent
        @reading = reading
        @why = []
      end

      # @return [Shape]
      def shape
        return Shape.new(env: {}, gc_config: gc_config, why: unread) unless @reading

        eden_said
        env = { **slots, **ratios, **malloc, **full_collections }
        config = gc_config
        Shape.new(env: env, gc_config: config, why: @why, eden_bytes: eden_bytes)
      end

      private

      def unread = [*@why, "nothing is known of this application yet: the first start runs with Ruby's own sizes"]

      def pools = @reading.fetch(:pools)

      def live_bytes = [pools.sum { |size, live| size * live }, 1].max

      def eden_bytes
        @eden_bytes ||=
          case @intent.eden
          when Integer then @intent.eden
          when Float then (@intent.eden * live_bytes).to_i
          else eden_by_itself
          end
      end

      def eden_by_itself
        bytes = (EDEN_OF_LIVE * live_bytes).to_i.clamp(EDEN_BYTES.begin, EDEN_BYTES.end)
        return bytes unless @intent.limit

        bytes.clamp(EDEN_BYTES_MIN, [(@intent.limit * EDEN_OF_LIMIT).to_i, EDEN_BYTES_MIN].max)
      end

      # Eden per byte that is alive.
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
          { "RUBY_GC_HEAP_INIT_BYTES" => (live_bytes + eden_bytes).to_s }
        end
      end

      def of_pools
        pools.each_with_index.to_h do |(_, live), index|
          ["RUBY_GC_HEAP_#{index}_INIT_SLOTS", [with_eden(live), POOL_SLOTS_MIN].max.to_s]
        end
      end

      # They keep the shape when what is alive grows. The first is the one below which Ruby calls a full collection.
      def ratios
        goal = (share / (1 + share)).clamp(FREE_RATIO.begin, FREE_RATIO.end)
        @why << "after a collection #{(goal * 100).round} % of the slots are to be free"
        { "MIN" => goal / 2, "GOAL" => goal, "MAX" => (1 + goal) / 2 }
          .to_h { |name, ratio| ["RUBY_GC_HEAP_FREE_SLOTS_#{name}_RATIO", ratio.round(3).to_s] }
      end

      def malloc
        @why << "#{mib(malloc_bytes)} outside of slots cause a collection, later at most " \
                "#{mib(malloc_bytes * MALLOC_GROWTH)}"
        { "RUBY_GC_MALLOC_LIMIT" => malloc_bytes.to_s,
          "RUBY_GC_MALLOC_LIMIT_MAX" => (malloc_bytes * MALLOC_GROWTH).to_s }
      end

      # Who names a number of bytes gets it.
      def malloc_bytes
        @intent.eden.is_a?(Integer) ? eden_bytes : eden_bytes.clamp(MALLOC_BYTES.begin, MALLOC_BYTES.end)
      end

      def full_collections
        return ruby_decides unless @intent.growth

        factor = (OLD_OBJECTS * (1 + @intent.growth)).round(2)
        old = malloc_bytes * OLD_MALLOC
        @why << "full collections are called between units of work; Ruby's own come when old objects are #{factor} " \
                "times as many, or hold #{mib(old)} to #{mib(old * MALLOC_GROWTH)} more"
        { "RUBY_GC_HEAP_OLDOBJECT_LIMIT_FACTOR" => factor.to_s, "RUBY_GC_OLDMALLOC_LIMIT" => old.to_s,
          "RUBY_GC_OLDMALLOC_LIMIT_MAX" => (old * MALLOC_GROWTH).to_s }
      end

      def ruby_decides
        @why << "full collections come when Ruby wants them"
        {}
      end

      # Only named here: it is set in workers, after boot has been promoted.
      def gc_config
        return {} if @intent.growth.nil? || (@version <=> [3, 4]).negative?

        @why << "workers run with GC.config(rgengc_allow_full_mark: false) while they have work"
        { rgengc_allow_full_mark: false }
      end

      def eden_said
        from = case @intent.eden
               when Integer then "as configured"
               when Float then "#{@intent.eden} times what is alive, as configured"
               else by_itself_said
               end
        @why << "eden #{mib(eden_bytes)}: #{from}; #{count(pools.sum(&:last))} objects, #{mib(live_bytes)}, are alive"
      end

      def by_itself_said
        wished = (EDEN_OF_LIVE * live_bytes).to_i
        return "#{EDEN_OF_LIVE} times what is alive" if eden_bytes == wished

        wished > eden_bytes ? "all that fits" : "the least there is"
      end

      def mib(bytes) = format("%.1f MiB", bytes.fdiv(1 << 20))

      def count(number) = number.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",")
    end
  end
end
