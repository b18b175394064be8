# frozen_string_literal: true

require_relative "slice"
require_relative "../support/machine"

module Bench
  module Web
    # Runs one case. All its servers are up the whole time and take turns under load, so that other load on the machine
    # affects all of them alike.
    class CaseRun
      SCOUT_S = 1

      # @param a_case [Case]
      # @param progress [#call] called with case, figures and round after every slice
      def initialize(a_case, progress)
        @case = a_case
        @progress = progress
      end

      # @return [Hash{Symbol => Object}] the raw results
      def run
        load_before = Machine.load_average
        servers = @case.servers.each { |server| server.start(@case.rackup) }
        chosen = choose(servers)
        slices = Array.new(@case.rounds) { |round| chosen.map { |server| slice(server, round) } }.flatten
        { case: @case.name, title: @case.title, path: @case.path, connections: @case.connections, mode: @case.mode,
          seconds: @case.seconds, warmup_s: @case.warmup_s, beside: @case.beside, scouted: @scouted,
          commands: servers.to_h { |server| [server.label, server.command_line(@case.rackup)] },
          machine_load: [load_before, Machine.load_average], slices: }
      ensure
        @case.servers.each(&:stop)
      end

      private

      # Measures many Pumas for a moment, and returns only the fastest of them for the full measurement.
      def choose(servers)
        return servers unless @case.scouts
        ours, peers = servers.partition(&:chaton?)
        rates = peers.to_h { |server| [server, Slice.new(@case, server, seconds: SCOUT_S, warmup_s: 0).measure[:rps]] }
        @scouted = rates.transform_keys(&:label)
        ours + rates.max_by(@case.scouts) { |_, rate| rate }.map(&:first)
      end

      def slice(server, round)
        measure(server).merge(round:).tap { |figures| @progress.call(@case, figures, round) }
      end

      def measure(server) = Slice.new(@case, server).measure
    end
  end
end
