# frozen_string_literal: true

require_relative "../support/machine"
require_relative "backlog"
require_relative "latency"
require_relative "local"
require_relative "produce"
require_relative "raw"
require_relative "table"
require_relative "waits"

module Bench
  module Streams
    # Runs one case: what is measured takes turns, so that whatever else the machine does falls on each alike. Each
    # slice has processes and a consumer group of its own; the broker is the same for all, and warm.
    class Contest
      KINDS = { table: Table, raw: Raw, waits: Waits, local: Local, produce: Produce, latency: Latency,
                backlog: Backlog }.freeze

      # @param a_case [Case]
      # @param progress [#call] told about every slice
      def initialize(a_case, progress)
        @case = a_case
        @progress = progress
      end

      # @return [Hash{Symbol => Object}] the raw results
      def run
        load_before = Machine.load_average
        kind = KINDS.fetch(@case.kind).new(@case)
        slices = Array.new(@case.rounds) { |round| in_turn(round).map { |server| slice(kind, server, round) } }.flatten
        { case: @case.name, title: @case.title, kind: @case.kind, consumer: @case.consumer, records: @case.records,
          bytes: @case.bytes, command: example.command_line, configuration: example.configuration("FOLDER", "BROKER"),
          machine_load: [load_before, Machine.load_average], slices: }
      end

      private

      # Another one begins each round.
      def in_turn(round) = @case.servers.rotate(round)

      def slice(kind, server, round)
        { server: server.label, round:, **kind.measure(server) }.tap { |figures| @progress.call(@case, figures) }
      rescue RuntimeError, SystemCallError => e
        # The others are still worth measuring; the row falls short.
        { server: server.label, round:, error: e.message }.tap { |figures| @progress.call(@case, figures) }
      end

      def example = ChatonStreams.new(threads: Array(@case.threads).first || 1, consumer: @case.consumer || "Untouched")
    end
  end
end
