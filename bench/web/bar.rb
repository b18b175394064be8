# frozen_string_literal: true

module Bench
  module Web
    # One demand on a case: a figure of Chaton's against Puma's, against itself, or by itself.
    #
    # `against`:
    #   :best     Puma's better figure in this very metric
    #   :fastest  the figure of that Puma which served most requests
    #   :pairs    the second server of the case, as the median of the ratios of each round
    #   nil       no one: the figure itself is compared
    Bar = Struct.new(:metric, :relation, :value, :against, keyword_init: true) do
      # @return [Bar]
      def self.at_least(metric, value, against: :best) = new(metric:, relation: :>=, value:, against:)
      def self.at_most(metric, value, against: :best) = new(metric:, relation: :<=, value:, against:)
      def self.within(metric, share, against: :pairs) = new(metric:, relation: :within, value: share, against:)

      # @return [Boolean]
      def met_by?(figure)
        return false if figure.nil? || figure.nan?
        relation == :within ? (figure - 1.0).abs <= value : figure.public_send(relation, value)
      end

      # @return [String] "requests/s 4.31× (≥ 3.5×)"
      def describe(figure)
        unit = against ? "×" : METRIC_UNITS.fetch(metric, "")
        sign = { :>= => "≥ ", :<= => "≤ ", :within => "1 ± " }.fetch(relation)
        shown = figure.nil? || figure.nan? ? "?" : "#{number(figure)}#{unit}"
        "#{METRIC_NAMES.fetch(metric)} #{shown} (#{sign}#{number(value)}#{unit})"
      end

      private

      def number(value) = value >= 100 ? value.round.to_s : format("%.3g", value)
    end

    METRIC_NAMES = { rps: "requests/s", steady_rps: "steady requests/s", p99_ms: "p99", cpu_us: "CPU per request",
                     waits: "waits per request", pss_mb: "memory", idle_waits: "idle wake-ups" }.freeze
    METRIC_UNITS = { p99_ms: " ms", cpu_us: " µs", pss_mb: " MB" }.freeze
  end
end
