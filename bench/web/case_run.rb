# frozen_string_literal: true

require_relative "slice"
require_relative "../support/machine"

module Bench
  module Web
    # Runs one case. All its servers are up the whole time and take turns under load, so that other load on the machine
    # affects all of them alike.
    class CaseRun
      SCOUT_S = 1
      # Fields of the case that its raw result repeats.
      REPORTED = %i[title path connections mode seconds warmup_s beside neighbours].freeze

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
        slices = Machine.beside_neighbours(@case.neighbours) { slices_of(choose(servers)) }
        { case: @case.name, **@case.to_h.slice(*REPORTED), scouted: @scouted,
          commands: servers.to_h { |server| [server.label, server.command_line(@case.rackup)] },
          machine_load: [load_before, Machine.load_average], slices: }
      ensure
        @case.servers.each(&:stop)
      end

      private

      # Measures each server for a moment, and returns ours and the fastest of many Pumas. All are warm then.
      def choose(servers)
        return servers unless @case.scouts
        rates = servers.to_h { |server| [server, Slice.new(@case, server, seconds: SCOUT_S).measure[:rps]] }
        @scouted = rates.transform_keys(&:label)
        ours, peers = servers.partition(&:chaton?)
        ours + peers.max_by(@case.scouts) { |server| rates[server] }
      end

      def slices_of(servers) = Array.new(@case.rounds) { |round| servers.map { |server| slice(server, round) } }.flatten

      def slice(server, round)
        measure(server).merge(round:).tap { |figures| @progress.call(@case, figures, round) }
      end

      def measure(server) = Slice.new(@case, server).measure
    end
  end
end
