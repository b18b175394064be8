# frozen_string_literal: true

require_relative "../support/cpu_clock"
require_relative "../web/slice"

module Bench
  module Gc
    # What one setting costs: servers that differ in it alone take turns under full load, another one first each round.
    class Cost
      # @param a_case [Case]
      # @param progress [#call] told about every slice
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

      # Differences are smaller than the hundredths of a second that a slice counts.
      def measure(server)
        pids = server.tree.pids
        before_s = CpuClock.seconds(pids)
        figures = Web::Slice.new(@case, server, warmup_s: 0).measure
        requests = [figures.dig(:wrk, :figures, "requests"), 1].max
        figures.merge(cpu_us: ((CpuClock.seconds(pids) - before_s) * 1e6 / requests).round(3))
      rescue RuntimeError => e
        raise "#{server.label}: #{e.message.lines.last}\n#{server.log.lines.last(20).join}"
      end

      # Before the first slice that counts caches are filled, and a tracer has been at work.
      def prepare(server)
        server.start(@case.rackup)
        measure(server)
        server.cli("trace", "stop") if server.label.end_with?("traced before")
      end
    end
  end
end
