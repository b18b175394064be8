# frozen_string_literal: true

require_relative "../peers/chaton_scraped"
require_relative "../peers/chaton_with"
require_relative "../support/bar"
require_relative "case_run"
require_relative "cases"

module Bench
  module Web
    # What it costs that Prometheus reads the metrics each second.
    class Scraped < CaseRun
      THREADS = "5:5"
      PLAIN = ChatonWith.new(threads: THREADS, workers: 1)
      CASE = Case.new(name: "metrics-scraped", kind: self, rackup: HELLO, path: "/", connections: 100, rounds: 11,
                      title: "hello, c=100, 1 worker; metrics read each second, against no admin endpoint",
                      seconds: 4, warmup_s: 1, bars: [Bar.at_least(:rps, 0.99, against: :pairs)],
                      servers: [ChatonScraped.new(threads: THREADS, workers: 1), PLAIN])

      private

      def measure(server) = server.is_a?(ChatonScraped) ? server.observed { super } : super
    end
  end
end
