# frozen_string_literal: true

require_relative "../peers/chaton_with"
require_relative "../peers/payload_chaton"
require_relative "../peers/payload_sidekiq"
require_relative "../support/bar"
require_relative "../support/case"

module Bench
  module Memory
    # All cases of the suite, in the order of the table.
    module Cases
      THREADS = 25
      # The number of arenas that glibc makes on a machine of eight cores.
      ARENAS = 64

      module_function

      # @return [Array<Case>]
      def all = [payloads, bursts, settle]

      def payloads
        Case.new(name: "payloads", kind: :payloads, rounds: 3, seconds: 60,
                 title: "jobs of 10 KB to 2 MB, 25 threads, 60 s, through the jobs engine on Redis; Sidekiq on glibc " \
                        "with 8 cores' worth of arenas",
                 servers: [chaton, sidekiq(ARENAS), sidekiq(nil)],
                 shows: %i[peak_mb last_mb after_mb work_per_cpu_s],
                 bars: [Bar.at_most(:peak_mb, 1 / 2.5, against: sidekiq(ARENAS).label),
                        Bar.at_most(:last_mb, 1 / 2.5, against: sidekiq(ARENAS).label),
                        Bar.at_least(:work_per_cpu_s, 1.08, against: sidekiq(ARENAS).label),
                        Bar.at_most(:climb, 1.03, against: nil),
                        Bar.at_most(:after_mb, 0.25, against: sidekiq(ARENAS).label)])
      end

      def bursts
        Case.new(name: "bursts", kind: :bursts, rounds: 1, seconds: 5, jobs: 400,
                 title: "10 bursts of 400 such jobs, 5 s idle after each",
                 servers: [chaton, sidekiq(ARENAS)], shows: %i[burst_2_mb burst_10_mb peak_mb],
                 bars: [Bar.at_most(:growth, 1.05, against: nil)])
      end

      # Compares Chaton with itself without any heap preparation before the forks, and without compaction only.
      def settle
        without = ChatonWith.new(workers: 2, preparation: File.expand_path("apps/without_settle.rb", __dir__),
                                 note: "without settle")
        partly = ChatonWith.new(workers: 2, settings: "memory { compact false }", note: "compact false")
        Case.new(name: "settle", kind: :workers, rounds: 3, requests: 5_000,
                 title: "private memory of each of 2 workers after 5,000 requests, template application",
                 servers: [ChatonWith.new(workers: 2), without, partly], shows: %i[private_mb shared_mb],
                 bars: [Bar.at_most(:private_mb, 0.65, against: without.label)])
      end

      def chaton = PayloadChaton.new(threads: "#{THREADS}:#{THREADS}")
      def sidekiq(arenas) = PayloadSidekiq.new(threads: THREADS, arenas:)
    end
  end
end
