# frozen_string_literal: true

require_relative "scout"
require_relative "step"

module Bench
  module Gc
    # One round: the offered rate rises in steps, and all servers take each step in turn, until each has fallen behind.
    # The result has each server's highest rate answered in full, and its latencies at the highest rate that all of
    # them answered in full.
    class Curve
      # The first rate, as a share of the slowest server's rate in a closed loop.
      FROM = 0.6
      # When a server falls behind on the first step, the climb starts again from this share of the rate.
      LOWER = 0.6
      STARTS = 4
      STEPS_MAX = 40
      # Other load on the machine may spoil a step, so a climb ends only after two failures in a row.
      TRIES = 2

      # @param a_case [Case]
      # @param progress [#call] called with server and figures after every step
      def initialize(a_case, progress)
        @case = a_case
        @progress = progress
      end

      # @param scouted [Hash{Server => Float}] see Scout
      # @return [Array<Hash>] a slice for each server
      def round(scouted)
        servers = scouted.keys
        servers.each { |server| server.start(@case.rackup) }
        steps = climb_from(servers, scouted.values.min * FROM)
        common = common_rate(steps)
        servers.map { |server| slice(server, steps.fetch(server), common) }
      ensure
        servers&.each(&:stop)
      end

      private

      def climb_from(servers, rate)
        steps = nil
        STARTS.times do |number|
          steps = climb(servers, rate * (LOWER**number))
          break if common_rate(steps)
        end
        steps
      end

      # @return [Hash{Server => Array<Hash>}] the steps by server
      def climb(servers, rate)
        steps = servers.to_h { |server| [server, []] }
        climbing = servers
        STEPS_MAX.times do
          climbing = climbing.select { |server| steps[server].concat(try(server, rate.round)).last[:kept_up] }
          # A server that fails on the first step ends the climb, because nothing could be compared.
          return steps if climbing.empty? || (climbing.size < servers.size && common_rate(steps).nil?)
          climbing = climbing.rotate
          rate *= @case.factor
        end
        raise "#{climbing.map(&:label).join(", ")}: no rate was too high, which is impossible"
      end

      def try(server, rate)
        tried = []
        TRIES.times do
          tried << Step.new(@case, server, rate:).measure
          @progress.call(server, tried.last)
          break if tried.last[:kept_up]
        end
        tried
      end

      # @return [Numeric, nil] the highest rate that all servers answered in full
      def common_rate(steps)
        steps.values.map { |of_one| of_one.select { |step| step[:kept_up] }.map { |step| step[:rate] } }.reduce(:&).max
      end

      def slice(server, steps, common)
        best = steps.select { |step| step[:kept_up] }.max_by { |step| step[:rate] }
        raise "#{server.label} fell behind at once" unless best
        shared = steps.find { |step| step[:kept_up] && step[:rate] == common } || {}
        { server: server.label, full_rate: best[:rate], full_rss_mb: best[:rss_mb], common_rate: common,
          **shared.slice(:gc_us, :gc_total_us, :p50_ms, :p99_ms, :p999_ms, :objects), steps: }
      end
    end
  end
end
