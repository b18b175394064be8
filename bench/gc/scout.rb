# frozen_string_literal: true

require_relative "../support/wrk"

module Bench
  module Gc
    # Measures roughly what the servers can do, so that the curve begins near its end, and chooses a peer's best
    # settings.
    class Scout
      CONNECTIONS = 8
      SECONDS = 3

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
      end

      # @return [Hash{Server => Float}] requests per second of Chaton's servers and of the best peers; all have ended
      def rates
        ours, peers = @case.servers.partition(&:chaton?)
        found = peers.to_h { |server| [server, rate(server)] }
        best = found.max_by(@case.scouts || found.size) { |_, rate| rate }.to_h
        @peer_rates = found.transform_keys(&:label)
        ours.to_h { |server| [server, rate(server)] }.merge(best)
      end

      # @return [Hash{String => Float}] requests per second of all peers
      attr_reader :peer_rates

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
