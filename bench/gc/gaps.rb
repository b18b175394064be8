# frozen_string_literal: true

require_relative "scout"
require_relative "step"

module Bench
  module Gc
    # One slice: requests for a while, nothing for a while, and so on; what was collected, and when.
    class Gaps
      BUSY_S = 2
      IDLE_S = 1
      # Of what the slower one did in a closed loop, so that everybody keeps up.
      SHARE = 0.5
      # How Chaton counts full collections while a unit of work runs.
      GAUGE = "gc_major_inside_total"

      # @param a_case [Case]
      # @param progress [#call] told about every slice
      def initialize(a_case, progress)
        @case = a_case
        @progress = progress
      end

      # @param scouted [Hash{Server => Float}] see Scout
      # @return [Array<Hash>] a slice for each server
      def round(scouted)
        rate = (scouted.values.min * SHARE).round
        scouted.keys.map { |server| slice(server, rate).tap { |figures| @progress.call(server, figures) } }
      end

      private

      def slice(server, rate)
        server.start(@case.rackup)
        before = GcReading.of(server)
        counted = server.chaton? ? server.gauge(GAUGE) : nil
        steps = bursts(server, rate)
        change = GcReading.between(before, GcReading.of(server))
        { server: server.label, rate:, kept_up: steps.all? { |step| step[:kept_up] },
          p999_ms: steps.map { |step| step[:p999_ms] }.max, gc_us: change[:gc_us],
          full_collections: change[:major], full_inside: change[:major_inside], minor: change[:minor],
          minor_inside: change[:minor_inside], **board(server, counted), steps: }
      ensure
        server.stop
      end

      def board(server, before) = before ? { board_inside: server.gauge(GAUGE) - before } : {}

      def bursts(server, rate)
        (@case.seconds / (BUSY_S + IDLE_S)).ceil.times.map do
          figures = OpenLoop.new(server.url(@case.path), rate:, seconds: BUSY_S).run
          sleep IDLE_S
          figures.merge(kept_up: OpenLoop.kept_up?(figures))
        end
      end
    end
  end
end
