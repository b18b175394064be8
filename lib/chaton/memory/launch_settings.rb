# frozen_string_literal: true

require_relative "../cpu_affinity"
require_relative "allocator"
require_relative "heap"
require_relative "heap_cache"

module Chaton
  module Memory
    # The allocator and the heap sizes that a process is started with, as environment variables. Variables that the user
    # has set are left alone.
    class LaunchSettings
      # Variables of the heap.
      HEAP = /\ARUBY_GC_/
      # Ruby collects nothing before the heap has this size, and Ruby 3.1 makes its pages when it starts. A supervisor
      # would never collect. In the preloader, which it forks, loading takes a twentieth longer
      # without.
      BEGINNING = /_INIT_(?:SLOTS|BYTES)\z/

      # @param plan [Config::Plan]
      # @param options [Hash] `env` and `loads` of {#initialize}
      def self.of(plan, **options)
        cache = HeapCache.of(plan, env: options.fetch(:env))
        new(plan.memory, cache: cache, before_start: CpuAffinity.library(plan), **options)
      end

      attr_reader :allocator, :heap
      # @return [HeapCache::Entry, nil] the reading from which the heap's sizes are derived
      attr_reader :entry

      # @param settings [Object] the settings of `memory { }`
      # @param env [Hash{String=>String}] as the user set it
      # @param loads [Boolean] whether the process loads the application itself
      # @param before_start [String, nil] path of {CpuAffinity::LIBRARY}
      def initialize(settings, cache:, env:, loads: true, before_start: nil,
                     allocator: Allocator.new(settings.allocator, env: env))
        @env = env
        @cache = cache
        @entry = cache.read
        @loads = loads
        @before_start = before_start unless preloaded.include?(before_start)
        @allocator = allocator.choice
        @heap = Heap.shape(RUBY_VERSION, Heap::Intent.of(settings), @entry&.reading)
      end

      # @return [Hash{String=>String}] variables to set; empty if nothing has to change
      def variables
        heap = @heap.env.reject { |name, value| left_alone.include?(name) || @env[name] == value }
        heap.reject! { |name, _| BEGINNING.match?(name) } unless @loads
        { **preload, **@allocator.env, **heap }
      end

      # @return [Array<String>] variables of the heap that the user has set
      def left_alone = @env.keys.grep(HEAP)

      # @return [String, nil] the age of the reading
      def age
        return unless @entry

        seconds = [Time.now.to_i - @entry.taken_at, 0].max
        unit, size = { "days" => 86_400, "hours" => 3600, "minutes" => 60 }.find { |_, length| seconds >= 2 * length }
        unit ? "#{seconds / size} #{unit}" : "#{seconds} seconds"
      end

      # @return [String, nil] why the file with the reading was rejected
      def problem = @entry ? nil : @cache.problem

      # @return [Array<Array(String, String, Hash)>] log lines: level, message, fields
      def log_lines = [[@allocator.missed ? "warn" : "info", @allocator.to_s, {}], heap_line]

      def to_h
        { allocator: @allocator.to_h, heap: { **@heap.to_h, taken_at: @entry&.taken_at, problem: problem },
          variables: variables, left_alone: left_alone }
      end

      private

      # Our libraries go first, because the first one that defines malloc is used.
      def preload
        ours = [@allocator.path, @before_start].compact
        ours.empty? ? {} : { "LD_PRELOAD" => [*ours, *preloaded].join(":") }
      end

      # @return [Array<String>] what the user preloads
      def preloaded = @env["LD_PRELOAD"].to_s.split(/[ :]+/).reject(&:empty?)

      def heap_line
        kept = left_alone.empty? ? {} : { left_alone: left_alone.join(" ") }
        return ["debug", "heap: #{problem || "first start of this bundle"}; Ruby's own sizes", kept] unless @entry

        ["info", "heap: sized by the last start, #{age} ago; #{@heap.why.first}", kept]
      end
    end
  end
end
