# frozen_string_literal: true

require_relative "../types/memory"
require_relative "../option"

module Chaton
  module Config
    module Options
      # How the definitions below are shortened.
      module MemoryShort
        # @return [Option] inside `memory { }`
        def self.memory(name, type, default, says, **rest)
          Option.new(name: name, group: :memory, scope: :memory, type: type, default: default, says: says, **rest)
        end

        # @return [Range] what a ceiling may be
        def self.bytes = (1 << 20)..(1 << 50)
      end
      private_constant :MemoryShort

      # How memory is allocated and collected.
      COLLECTION = [
        MemoryShort.memory(:allocator, Types::OneOf.new(:auto, :jemalloc, :mimalloc, :system), :auto,
                           "Who gives out memory below Ruby. auto: jemalloc, the system's or else Chaton's own, and " \
                           "where there is none the C library's, tuned. The process executes itself anew for it. " \
                           "CHATON_ALLOCATOR_PATH names other directories to look in.",
                           flags: %w[--allocator], placeholder: "NAME"),
        MemoryShort.memory(:eden, Types::EdenSize.new, :auto,
                           "What may be allocated between two collections; auto: 1.5 times what is alive after boot, " \
                           "between 4 and 256 MiB.", flags: %w[--eden], placeholder: "SIZE"),
        MemoryShort.memory(:longlife, Types::LonglifeGrowth.new, :settle,
                           "By what share the old objects must have grown before all of them are looked through; " \
                           "settle is 1.0, twice as many as boot left. off: Ruby's own limits."),
        MemoryShort.memory(:compact, Types::Switch.new, true,
                           "Put objects side by side before workers are forked, so that they go on sharing them."),
        MemoryShort.memory(:collect, Types::OneOf.new(:between, :off), :between,
                           "When garbage is collected: between requests and jobs, or (off) when Ruby likes."),
        MemoryShort.memory(:idle_full_ms, Types::Number.new(0.0..3_600_000.0, unit: "milliseconds"), 50.0,
                           "How long a process has had nothing to do before a full collection may run in it.",
                           also: %i[idle_full]),
        MemoryShort.memory(:trim_idle_s, Types::Number.new(0.0..86_400.0, unit: "seconds"), 1.0,
                           "How long it has had nothing to do before free memory goes back to the operating system.",
                           also: %i[trim_idle]),
        MemoryShort.memory(:summary, Types::Switch.new, false, "A line in the log for each collection.")
      ].freeze

      # What memory may be used.
      CEILINGS = [
        MemoryShort.memory(:limit, Types::BytesOr.new(MemoryShort.bytes, :auto, :off), :auto,
                           "Memory of one worker (its share of what it shares counted in), above which it is " \
                           "replaced: a new one is started, it finishes what it runs and leaves.",
                           flags: %w[--memory-limit], placeholder: "BYTES"),
        MemoryShort.memory(:limit_hard, Types::BytesOr.new(MemoryShort.bytes, none: true), nil,
                           "Above this it is ended at once.", default_text: "1.5 times limit"),
        MemoryShort.memory(:limit_tree, Types::BytesOr.new(MemoryShort.bytes, :auto, :off), :auto,
                           "Memory of all processes together; above it the largest worker is replaced. auto: 0.9 of " \
                           "the container's limit, where there is one."),
        MemoryShort.memory(:check_every_s, Types::Number.new(0.1..3600.0, unit: "seconds"), 2.0,
                           "How often the supervisor looks.", also: %i[check_every])
      ].freeze

      # What is seen of allocations.
      TRACING = [
        MemoryShort.memory(:trace, Types::Switch.new, false,
                           "Trace allocations from the start; `chaton trace` switches it in a running server."),
        MemoryShort.memory(:trace_every, Types::Number.new(1..1_000_000), 64, "Of so many objects one is looked at."),
        MemoryShort.memory(:trace_duty, Types::Number.new(0.001..1.0), 0.02,
                           "The share of the time in which it is done at all."),
        MemoryShort.memory(:trace_window_ms, Types::Number.new(0.1..1000.0, unit: "milliseconds"), 50.0,
                           "How long it is on at a stretch."),
        MemoryShort.memory(:trace_samples_max, Types::Number.new(1024..16_777_216), 65_536,
                           "Objects that are followed at once."),
        MemoryShort.memory(:trace_stacks_max, Types::Number.new(64..1_048_576), 16_384,
                           "Different stacks that are kept apart."),
        MemoryShort.memory(:trace_depth_max, Types::Number.new(1..1024), 128, "Calls of a stack that are kept.")
      ].freeze

      # All of them.
      MEMORY = [*COLLECTION, *CEILINGS, *TRACING].freeze
    end
  end
end
