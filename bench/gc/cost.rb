# frozen_string_literal: true

require_relative "../web/slice"

module Bench
  module Gc
    # What one setting costs: servers that differ in it alone take turns under full load, another one first each round.
    class Cost
      # Before the first slice: caches are filled, and a tracer has been at work.
      FIRST_S = 2

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
            Web::Slice.new(@case, server, warmup_s: 0).measure.merge(round:).tap { @progress.call(server, _1) }
          end
        end.flatten
      ensure
        @case.servers.each(&:stop)
      end

      private

      def prepare(server)
        server.start(@case.rackup)
        Web::Slice.new(@case, server, seconds: FIRST_S, warmup_s: 0).measure
        server.cli("trace", "stop") if server.label.end_with?("traced before")
      end
    end
  end
end
