# frozen_string_literal: true

require_relative "scout"
require_relative "step"

module Bench
  module Gc
    # One slice: load and idle time in turn. It counts the collections inside and outside of requests.
    class Gaps
      BUSY_S = 2
      IDLE_S = 1
      # Share of the slowest server's rate in a closed loop, so that all servers keep up.
      SHARE = 0.5
      # Chaton's own count of full collections during a request.
      GAUGE = "gc_major_inside_total"

      # @param a_case [Case]
      # @param progress [#call] called with server and figures after every slice
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
          minor_inside: change[:minor_inside], **own_count(server, counted), steps: }
      ensure
        server.stop
      end

      def own_count(server, before) = before ? { board_inside: server.gauge(GAUGE) - before } : {}

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
