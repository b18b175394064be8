# frozen_string_literal: true

require_relative "../option"
require_relative "../types/memory"

module Chaton
  module Config
    module Options
      # What a memory ceiling may be.
      CEILING_BYTES = (1 << 20)..(1 << 50)

      # How memory is allocated and collected.
      COLLECTION = [
        Option.in(:memory, :allocator, :memory, Types::OneOf.new(:auto, :jemalloc, :mimalloc, :system), :auto,
                  "The C allocator below Ruby. auto: jemalloc, the system's or else Chaton's own; without any, the C " \
                  "library's, tuned. The process executes itself again to load it. CHATON_ALLOCATOR_PATH names other " \
                  "directories to search.", flags: %w[--allocator], placeholder: "NAME"),
        Option.in(:memory, :eden, :memory, Types::EdenSize.new, :auto,
                  "How much may be allocated between two collections; auto: begins with 1.5 times what is " \
                  "alive after boot, or with what the last start found, and finds the size by what collecting " \
                  "costs, between 4 and 256 MiB.", flags: %w[--eden], placeholder: "SIZE"),
        Option.in(:memory, :longlife, :memory, Types::LonglifeGrowth.new, :settle,
                  "By what share the old objects may grow before a full collection; settle is 1.0, twice as many as " \
                  "after boot. off: Ruby's own limits."),
        Option.in(:memory, :compact, :memory, Types::Switch.new, Process.respond_to?(:warmup),
                  "Compact the heap before workers are forked, so that they share more of it. Off before Ruby 3.3, " \
                  "whose native extensions were written when few servers moved objects: one that keeps the address " \
                  "of an object crashes. When a worker crashes in its first minute, the code is loaded again without " \
                  "compaction.", default_text: "on with Ruby 3.3 and later, else off"),
        Option.in(:memory, :collect, :memory, Types::OneOf.new(:between, :off), :between,
                  "When garbage is collected: between requests and jobs, or (off) when Ruby decides."),
        Option.in(:memory, :idle_full_ms, :memory, Types::Number.new(0.0..3_600_000.0, unit: "milliseconds"), 50.0,
                  "How long a process must be idle before a full collection may run in it.", also: %i[idle_full]),
        Option.seconds(:memory, :trim_idle_s, :memory, 0.0..86_400.0, 1.0,
                       "How long a process must be idle before free memory goes back to the operating system."),
        Option.in(:memory, :summary, :memory, Types::Switch.new, false, "Log a line for each collection.")
      ].freeze

      # How much memory may be used.
      CEILINGS = [
        Option.in(:memory, :limit, :memory, Types::BytesOr.new(CEILING_BYTES, :auto, :off), :auto,
                  "Memory of one worker (including its part of shared memory) above which it is replaced: a new one " \
                  "is started, then the old one finishes its work and exits.",
                  flags: %w[--memory-limit], placeholder: "BYTES"),
        Option.in(:memory, :limit_hard, :memory, Types::BytesOr.new(CEILING_BYTES, none: true), nil,
                  "Memory of one worker above which it is stopped at once.", default_text: "1.5 times limit"),
        Option.in(:memory, :limit_tree, :memory, Types::BytesOr.new(CEILING_BYTES, :auto, :off), :auto,
                  "Memory of all processes together above which the largest worker is replaced. auto: 0.9 of the " \
                  "container's limit, if there is one."),
        Option.seconds(:memory, :check_every_s, :memory, 0.1..3600.0, 2.0,
                       "Time between two readings of the memory in use.")
      ].freeze

      # How allocations are traced.
      TRACING = [
        Option.in(:memory, :trace, :memory, Types::Switch.new, false,
                  "Trace allocations from the start; `chaton trace` switches it in a running server."),
        Option.in(:memory, :trace_every, :memory, Types::Number.new(1..1_000_000), 64,
                  "One of this many objects is sampled."),
        Option.in(:memory, :trace_duty, :memory, Types::Number.new(0.001..1.0), 0.02,
                  "Share of the time during which tracing is on."),
        Option.in(:memory, :trace_window_ms, :memory, Types::Number.new(0.1..1000.0, unit: "milliseconds"), 50.0,
                  "How long it is on without a break."),
        Option.in(:memory, :trace_samples_max, :memory, Types::Number.new(1024..16_777_216), 65_536,
                  "Objects that are followed at once."),
        Option.in(:memory, :trace_stacks_max, :memory, Types::Number.new(64..1_048_576), 16_384,
                  "Different stacks that are kept."),
        Option.in(:memory, :trace_depth_max, :memory, Types::Number.new(1..1024), 128, "Calls kept of each stack.")
      ].freeze

      MEMORY = [*COLLECTION, *CEILINGS, *TRACING].freeze
    end
  end
end
