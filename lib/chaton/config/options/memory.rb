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
                  "When garbage is collected: between requests and jobs, or (off) when Ruby decides.", engine: :memory),
        Option.in(:memory, :summary, :memory, Types::Switch.new, false, "Log a line for each collection.",
                  engine: :memory)
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
                  "container's limit, if there is one.")
      ].freeze

      # Where allocations come from.
      PROFILING = [
        Option.in(:memory, :profile, :memory, Types::Switch.new, false,
                  "Profile allocations from the start; `chaton profile` switches it in a running server.")
      ].freeze

      MEMORY = [*COLLECTION, *CEILINGS, *PROFILING].freeze
    end
  end
end
