# frozen_string_literal: true

require_relative "../peers/chaton_with"
require_relative "../peers/puma"
require_relative "../peers/puma_with_jemalloc"
require_relative "../support/bar"
require_relative "../support/case"
require_relative "apps"

module Bench
  module Gc
    # All cases of the suite, in the order of the table.
    module Cases
      # For machines with plenty of memory.
      LARGE_EDEN = "4x"
      # The differences are small, so the median of many pairs is needed.
      PAIRS = 31

      module_function

      # @return [Array<Case>]
      def all = [curve, payloads, gaps, *tracer, summary]

      def curve
        large = ChatonWith.new(settings: %(memory { eden "#{LARGE_EDEN}" }), note: "eden #{LARGE_EDEN}")
        row(name: "curve", kind: :curve, rounds: 3, seconds: 4, factor: 1.1, scouts: 1,
            title: "templates over 450,000 live objects, constant rate in steps until responses fall behind",
            servers: [ChatonWith.new, large, *pumas],
            shows: %i[full_rate full_rss_mb gc_us p99_ms p999_ms],
            bars: [Bar.at_least(:full_rate, 1.25), Bar.at_most(:full_rss_mb, 1.5), Bar.at_most(:gc_us, 1 / 3r),
                   Bar.at_most(:p999_ms, 1 / 3r), Bar.at_least(:full_rate, 1.5, of: large.label)])
      end

      def payloads
        servers = [ChatonWith, Puma, PumaWithJemalloc].map { |server| server.new(threads: "25:25") }
        glibc, jemalloc = servers.last(2).map(&:label)
        row(name: "payloads", kind: :cost, rounds: 5, seconds: 10, connections: 25, rackup: PAYLOADS,
            title: "documents of 10 KB to 2 MB, 25 threads and clients", servers:, shows: %i[rps cpu_us p99_ms rss_mb],
            bars: [Bar.at_most(:cpu_us, 1 / 1.1r, against: glibc), Bar.at_most(:cpu_us, 1 / 1.1r, against: jemalloc),
                   Bar.at_most(:rss_mb, 1 / 2.5, against: glibc), Bar.at_most(:rss_mb, 0.65, against: jemalloc)])
      end

      def gaps
        row(name: "gaps", kind: :gaps, rounds: 1, seconds: 60, scouts: 1,
            title: "the same for 60 s, 2 s at half the highest rate and 1 s idle in turn",
            servers: [ChatonWith.new, *pumas], shows: %i[full_collections full_inside board_inside gc_us p999_ms],
            bars: [Bar.at_most(:full_inside, 0, against: nil), Bar.at_most(:board_inside, 0, against: nil)])
      end

      # The tracer of the third server was on and is off again.
      def tracer
        servers = lambda do
          [ChatonWith.new(settings: "memory { profile true }", note: "traced"), ChatonWith.new(note: "untraced"),
           ChatonWith.new(settings: "memory { profile true }", note: "traced before")]
        end
        [["tracer-sinatra", "Sinatra example", SINATRA, 0.985], ["tracer-loop", "allocation loop", ALLOCATIONS, 0.96]]
          .map do |name, title, rackup, share|
            cost(name:, title: "tracer at its default rate, #{title}", rackup:, servers: servers.call,
                 bars: [*dearer(share, "chaton traced"), *dearer(0.995, "chaton traced before")])
          end
      end

      def summary
        servers = [ChatonWith.new(settings: "memory { summary true }", note: "with summaries"),
                   ChatonWith.new(note: "untraced")]
        cost(name: "summary", title: "a summary line for each collection, templates over 450,000 objects",
             rackup: CATALOGUE, servers:, bars: dearer(0.995, servers.first.label))
      end

      def cost(**given)
        row(kind: :cost, rounds: PAIRS, seconds: 2, connections: 16, shows: %i[rps cpu_us p99_ms], **given)
      end

      def row(**given) = Case.new(path: "/", warmup_s: 1, rackup: CATALOGUE, **given)

      # Throughput may fall to this share, and CPU per request may rise by its inverse.
      def dearer(share, label)
        [Bar.at_least(:rps, share, against: "chaton untraced", of: label),
         Bar.at_most(:cpu_us, 1 / share, against: "chaton untraced", of: label)]
      end

      def pumas
        [Puma.new(threads: "1:1"), Puma.new(threads: "5:5"), Puma.new(threads: "1:1", core: PINNED_CORE),
         Puma.new(threads: "5:5", core: PINNED_CORE)]
      end
    end
  end
end
