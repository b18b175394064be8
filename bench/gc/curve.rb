# frozen_string_literal: true

require_relative "scout"
require_relative "step"

module Bench
  module Gc
    # One round: all servers climb the same ladder of rates in turn, a step each, until each has fallen behind. Then
    # each one's highest rate that it answered in full, and how they answered the highest that all of them did.
    class Curve
      # The ladder begins at this share of what the slowest did in a closed loop.
      FROM = 0.6
      # Where somebody falls behind on the first step, it began too high: again from this share of it, so many times.
      LOWER = 0.6
      STARTS = 4
      STEPS_MAX = 40
      # What else the machine does may spoil a step: only two in a row end the climb.
      TRIES = 2

      # @param a_case [Case]
      # @param progress [#call] told about every step
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

      # @return [Hash{Server => Array<Hash>}] the steps of each
      def climb(servers, rate)
        steps = servers.to_h { |server| [server, []] }
        climbing = servers
        STEPS_MAX.times do
          climbing = climbing.select { |server| steps[server].concat(try(server, rate.round)).last[:kept_up] }
          # Who cannot do the first step ends the climb: nothing could be compared.
          return steps if climbing.empty? || (climbing.size < servers.size && common_rate(steps).nil?)
          climbing = climbing.rotate
          rate *= @case.factor
        end
        raise "#{climbing.map(&:label).join(", ")}: no rate was too high, which cannot be"
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

      # @return [Numeric, nil] the highest that everybody answered in full
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
