# frozen_string_literal: true

require_relative "allocator"
require_relative "heap"
require_relative "heap_cache"

module Chaton
  module Memory
    # What a process is given at its start: allocator and heap, as variables, without those that the user set.
    class Provision
      # Of what the user may set, and what is then left alone.
      HEAP = /\ARUBY_GC_/

      # @return [Allocator::Choice]
      attr_reader :allocator
      # @return [Heap::Shape]
      attr_reader :heap
      # @return [HeapCache::Entry, nil] what the heap was derived from
      attr_reader :entry

      # @param settings [Object] those of `memory { }`
      # @param cache [HeapCache]
      # @param env [Hash{String=>String}] as the user set it
      # @param allocator [Allocator]
      def initialize(settings, cache:, env:, allocator: Allocator.new(settings.allocator, env: env))
        @env = env
        @cache = cache
        @entry = cache.read
        @allocator = allocator.choice
        @heap = Heap.shape(ruby, Heap::Intent.of(settings), @entry&.reading)
      end

      # @return [Hash{String=>String}] what has to be set; nothing where all is as it should be
      def variables
        heap = @heap.env.reject { |name, value| theirs.include?(name) || @env[name] == value }
        { **preload, **@allocator.env, **heap }
      end

      # @return [Array<String>] variables of the heap that the user set
      def theirs = @env.keys.grep(HEAP)

      # @return [String, nil] how old the reading is
      def age
        return unless @entry

        seconds = [Time.now.to_i - @entry.taken_at, 0].max
        unit, size = { "days" => 86_400, "hours" => 3600, "minutes" => 60 }.find { |_, length| seconds >= 2 * length }
        unit ? "#{seconds / size} #{unit}" : "#{seconds} seconds"
      end

      # @return [String, nil] why there is no reading although a file is there
      def problem = @entry ? nil : @cache.problem

      # @return [Array<Array(String, String, Hash)>] lines of the log: level, message, fields
      def said = [[@allocator.missed ? "warn" : "info", @allocator.to_s, {}], heap_said].compact

      # @return [Hash{Symbol=>Object}] JSON-able
      def to_h
        { allocator: @allocator.to_h, heap: { **@heap.to_h, taken_at: @entry&.taken_at, problem: problem },
          variables: variables, left_alone: theirs }
      end

      private

      # Another program may run on another Ruby than we do.
      def ruby
        named = @entry&.reading&.fetch(:ruby, nil).to_s
        named.match?(/\A\d+\.\d+/) ? named : RUBY_VERSION
      end

      # Ours goes first: the first one that defines malloc is the one that is used.
      def preload
        return {} unless @allocator.path

        { "LD_PRELOAD" => [@allocator.path, *@env["LD_PRELOAD"].to_s.split(/[ :]+/)].reject(&:empty?).join(":") }
      end

      def heap_said
        kept = theirs.empty? ? {} : { left_alone: theirs.join(" ") }
        return ["debug", "heap: #{problem || "first start of this bundle"}; Ruby's own sizes", kept] unless @entry

        ["info", "heap: sized by the last start, #{age} ago; #{@heap.why.first}", kept]
      end
    end
  end
end
