# frozen_string_literal: true

require_relative "../support/rss_sampler"
require_relative "case_run"
require_relative "cases"

module Bench
  module Web
    # Measures what a waiting request costs: the resident memory while a thousand wait, above that of the same process
    # after a small load.
    class Waiting < CaseRun
      COUNT = 1000
      # The warm-up starts the threads, and the allocators give back what they used for that.
      CASE = Case.new(name: "waiting", kind: self, title: "#{COUNT} requests that wait 1 s each, -t 1:#{COUNT}, warm",
                      rackup: WORK, path: "/sleep?1", connections: COUNT, warmup_s: 15, seconds: 5, rounds: 3,
                      servers: [Chaton.new(threads: "1:#{COUNT}"), Puma.new(threads: "1:#{COUNT}")],
                      bars: [Bar.at_most(:waiting_kb, 45.0, against: nil),
                             Bar.at_least(:steady_rps, 0.95 * COUNT, against: nil)])
      SMALL_LOAD = { path: "/", connections: 10, warmup_s: 0, seconds: 2 }.freeze

      private

      def measure(server)
        before_mb = memory_before(server)
        sampler = RssSampler.new(server.tree)
        figures = sampler.during { super }
        waiting_mb = sampler.peak(@case.warmup_s)
        figures.merge(before_mb:, waiting_mb:, waiting_kb: ((waiting_mb - before_mb) * 1024 / COUNT).round(1))
      end

      # Once for each server: its process keeps some memory of the first slice.
      def memory_before(server)
        (@before_mb ||= {})[server] ||= begin
          small = @case.dup.tap { |a_case| SMALL_LOAD.each { |name, value| a_case[name] = value } }
          Slice.new(small, server).measure
          RssSampler.now(server.tree)
        end
      end
    end
  end
end
