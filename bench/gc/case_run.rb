# frozen_string_literal: true

require_relative "../support/machine"
require_relative "cost"
require_relative "curve"
require_relative "gaps"

module Bench
  module Gc
    # Runs one case. The curve and the gaps first measure roughly what the servers can do, and which Puma is the best.
    class CaseRun
      KINDS = { curve: Curve, gaps: Gaps }.freeze

      # @param a_case [Case]
      # @param progress [#call] called with case, server, figures and round after every slice or step
      def initialize(a_case, progress)
        @case = a_case
        @progress = progress
      end

      # @return [Hash{Symbol => Object}] the raw results
      def run
        load_before = Machine.load_average
        slices = @case.kind == :cost ? cost : rounds
        { case: @case.name, title: @case.title, kind: @case.kind, seconds: @case.seconds, warmup_s: @case.warmup_s,
          connections: @case.connections, factor: @case.factor, scouted: @scouted,
          commands: @case.servers.to_h { |server| [server.label, server.command_line(@case.rackup)] },
          machine_load: [load_before, Machine.load_average], slices: }
      end

      private

      def rounds
        scout = Scout.new(@case)
        rates = scout.rates
        @scouted = scout.peer_rates.merge(rates.transform_keys(&:label))
        Array.new(@case.rounds) do |round|
          report = ->(server, figures) { @progress.call(@case, server, figures, round) }
          KINDS.fetch(@case.kind).new(@case, report).round(rates).map { |slice| slice.merge(round:) }
        end.flatten
      rescue RuntimeError => e
        failed(e)
      end

      def cost
        Cost.new(@case, ->(server, figures) { @progress.call(@case, server, figures, figures[:round]) }).rounds
      rescue RuntimeError => e
        failed(e)
      end

      # Without results the row falls short, and shows the error.
      def failed(error)
        server = @case.servers.first
        [{ server: server.label, round: 0, error: error.message }]
          .each { |slice| @progress.call(@case, server, slice, 0) }
      end
    end
  end
end
