# frozen_string_literal: true

require_relative "../../peers/chaton_traced"

module Bench
  module Web
    # The row of traces.
    module Cases
      module_function

      # What traces cost where little happens besides. The first server is the measured one.
      def traces
        Case.new(name: "traces", title: "hello, c=100, traces at 1 % against none", rackup: HELLO, path: "/",
                 connections: 100, rounds: 11, seconds: 2,
                 servers: [ChatonTraced.new(sample: 0.01, threads: "5:5"), ChatonWith.new(threads: "5:5")],
                 bars: [Bar.at_least(:rps, 0.98, against: :pairs)])
      end
    end
  end
end
