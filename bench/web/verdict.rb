# frozen_string_literal: true

require_relative "../support/median"

module Bench
  module Web
    # What a case's raw results mean: each server's medians, and whether each bar was met.
    class Verdict
      METRICS = %w[rps steady_rps p50_ms p99_ms cpu_us waits rss_mb pss_mb errors idle_waits].freeze
      # Metrics where the greater figure is the better one.
      GREATER = %w[rps steady_rps].freeze

      attr_reader :raw, :a_case

      # @param a_case [Case]
      # @param raw [Hash{String => Object}] as it was written
      def initialize(a_case, raw)
        @a_case = a_case
        @raw = raw
      end

      # @return [Hash{String => Hash{String => Float}}] medians by the server's label
      def medians
        @medians ||= raw.fetch("slices").group_by { |slice| slice["server"] }.transform_values do |slices|
          measured = METRICS.select { |metric| slices.first.key?(metric) }
          measured.to_h { |metric| [metric, Bench.median(slices.map { |slice| slice[metric] }).to_f] }
        end
      end

      def ours = medians.find { |label, _| label.start_with?("chaton") }.last
      def peers = medians.reject { |label, _| label.start_with?("chaton") }

      # @return [Array<(String, Hash)>, nil] the Puma that served most
      def fastest_peer = peers.max_by { |_, figures| figures["rps"] }

      # @return [Float] the figure that the bar is about
      def figure(bar)
        metric = bar.metric.to_s
        case bar.against
        when nil then ours[metric]
        when :pairs then pairs(metric)
        when :fastest then ratio(ours[metric], fastest_peer.last[metric])
        else ratio(ours[metric], best_peer(metric))
        end
      end

      # @return [Array<(Bar, Float, Boolean)>]
      def bars = a_case.bars.map { |bar| [bar, figure(bar), bar.met_by?(figure(bar))] }

      # A server that answered with errors has served nothing, however fast.
      def met? = bars.all?(&:last) && ours.fetch("errors", 0).zero?

      private

      def best_peer(metric)
        values = peers.values.filter_map { |figures| figures[metric] }
        GREATER.include?(metric) ? values.max : values.min
      end

      def pairs(metric)
        first, second = raw.fetch("slices").group_by { |slice| slice["server"] }.values
        Bench.median(first.zip(second).map { |one, other| ratio(one[metric], other[metric]) })
      end

      def ratio(one, other) = other.nil? || other.zero? ? Float::NAN : one.to_f / other
    end
  end
end
