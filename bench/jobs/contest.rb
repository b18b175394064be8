# frozen_string_literal: true

require_relative "../support/machine"
require_relative "../support/redis_server"
require_relative "delay"
require_relative "drain"
require_relative "enqueue"
require_relative "latency"

module Bench
  module Jobs
    # Runs one case: its servers take turns on one Redis, so that whatever else the machine does falls on each of them
    # alike. Each slice has a process of its own; memory and caches depend on what it did before.
    class Contest
      KINDS = { drain: Drain, enqueue: Enqueue, latency: Latency }.freeze

      # @param a_case [Case]
      # @param progress [#call] told about every slice
      def initialize(a_case, progress)
        @case = a_case
        @progress = progress
      end

      # @return [Hash{Symbol => Object}] the raw results
      def run
        load_before = Machine.load_average
        @redis = RedisServer.new.start
        @delay = @case.delay_ms && Delay.new(@redis.port, @case.delay_ms).start
        slices = Array.new(@case.rounds) { |round| in_turn(round).map { |server| slice(server, round) } }.flatten
        { case: @case.name, title: @case.title, kind: @case.kind, job: @case.job, jobs: @case.jobs, nap_s: @case.nap_s,
          delay_ms: @case.delay_ms, commands: @case.servers.to_h { |server| [server.label, server.command_line] },
          configurations: configurations, machine_load: [load_before, Machine.load_average], slices: }
      ensure
        @delay&.stop
        @redis&.stop
      end

      private

      # Another one begins each round.
      def in_turn(round) = @case.servers.rotate(round)

      def slice(server, round)
        figures = KINDS.fetch(@case.kind).new(@case, server, @redis, port: @delay&.port || @redis.port).measure
        figures.merge(round:).tap { @progress.call(@case, _1, round) }
      rescue RuntimeError => e
        # The others are still worth measuring; the row falls short.
        { server: server.label, round:, error: e.message }.tap { @progress.call(@case, _1, round) }
      end

      def configurations
        @case.servers.select(&:chaton?).to_h do |server|
          [server.label, server.configuration("FOLDER", "redis://127.0.0.1:PORT/0")]
        end
      end
    end
  end
end
