# frozen_string_literal: true

require_relative "../support/wrk"

module Bench
  module Gc
    # Finds out roughly what servers can do, so that the curve begins near its end, and which of a peer's settings is
    # its best one.
    class Scout
      CONNECTIONS = 8
      SECONDS = 3

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
      end

      # @return [Hash{Server => Float}] requests a second: of ours, and of the best of the others; each was started and
      #   ended for it
      def rates
        ours, peers = @case.servers.partition(&:chaton?)
        found = peers.to_h { |server| [server, rate(server)] }
        best = found.max_by(@case.scouts || found.size) { |_, rate| rate }.to_h
        @told = found.transform_keys(&:label)
        ours.to_h { |server| [server, rate(server)] }.merge(best)
      end

      # @return [Hash{String => Float}] of all peers, for the record
      attr_reader :told

      private

      def rate(server)
        server.start(@case.rackup)
        Wrk.new(server.url(@case.path), connections: CONNECTIONS, seconds: SECONDS).run.rps
      ensure
        server.stop
      end
    end
  end
end
