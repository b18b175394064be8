# frozen_string_literal: true

require_relative "../support/cpu_clock"
require_relative "../web/slice"

module Bench
  module Gc
    # Measures the cost of one setting. Servers that differ only in the setting take turns under full load, and another
    # one begins each round.
    class Cost
      # @param a_case [Case]
      # @param progress [#call] called with server and figures after every slice
      def initialize(a_case, progress)
        @case = a_case
        @progress = progress
      end

      # @return [Array<Hash>] the slices of all rounds
      def rounds
        @case.servers.each { |server| prepare(server) }
        Array.new(@case.rounds) do |round|
          @case.servers.rotate(round).map do |server|
            measure(server).merge(round:).tap { @progress.call(server, _1) }
          end
        end.flatten
      ensure
        @case.servers.each(&:stop)
      end

      private

      # The clock has nanoseconds, because the differences are smaller than the hundredths of a second of Web::Slice.
      def measure(server)
        pids = server.tree.pids
        before_s = CpuClock.seconds(pids)
        figures = Web::Slice.new(@case, server, warmup_s: 0).measure
        requests = [figures.dig(:wrk, :figures, "requests"), 1].max
        figures.merge(cpu_us: ((CpuClock.seconds(pids) - before_s) * 1e6 / requests).round(3))
      rescue RuntimeError => e
        raise "#{server.label}: #{e.message.lines.last}\n#{server.log.lines.last(20).join}"
      end

      # Runs a first slice that is not counted, to fill caches and, where there is one, to use the tracer.
      def prepare(server)
        server.start(@case.rackup)
        measure(server)
        server.cli("trace", "stop") if server.label.end_with?("traced before")
      end
    end
  end
end
