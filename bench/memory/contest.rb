# frozen_string_literal: true

require_relative "../support/machine"
require_relative "../support/redis_server"
require_relative "bursts"
require_relative "payloads"
require_relative "workers"

module Bench
  module Memory
    # Runs one case: its servers take turns, each slice with a process of its own, since memory depends on what a
    # process did before.
    class Contest
      KINDS = { payloads: Payloads, bursts: Bursts, workers: Workers }.freeze

      # @param a_case [Case]
      # @param progress [#call] told about every slice
      def initialize(a_case, progress)
        @case = a_case
        @progress = progress
      end

      # @return [Hash{Symbol => Object}] the raw results
      def run
        load_before = Machine.load_average
        @redis = RedisServer.new.start unless @case.kind == :workers
        slices = Array.new(@case.rounds) { |round| @case.servers.rotate(round).map { |server| slice(server, round) } }
        { case: @case.name, title: @case.title, kind: @case.kind, seconds: @case.seconds, jobs: @case.jobs,
          requests: @case.requests, commands: commands, machine_load: [load_before, Machine.load_average],
          slices: slices.flatten }
      ensure
        @redis&.stop
      end

      private

      def slice(server, round)
        figures = KINDS.fetch(@case.kind).new(@case, server, @redis).measure
        figures.merge(round:).tap { @progress.call(@case, _1, round) }
      rescue RuntimeError => e
        # The others are still worth measuring; the row falls short.
        { server: server.label, round:, error: e.message }.tap { @progress.call(@case, _1, round) }
      end

      def commands
        @case.servers.to_h do |server|
          line = server.is_a?(JobServer) ? server.command_line : server.command_line(Gc::CATALOGUE)
          [server.label, line]
        end
      end
    end
  end
end
