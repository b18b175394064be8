# frozen_string_literal: true

require_relative "bar"
require_relative "numbers"

module Bench
  # One row of a chart: one metric of a case, Chaton's figure beside the best peer's.
  #
  # `unit` follows the figure; `better` is :higher or :lower; `ours` and `peer` are prefixes of the servers' labels,
  # where a case has several of them.
  ChartRow = Struct.new(:case_name, :title, :metric, :unit, :better, :ours, :peer, keyword_init: true) do
    def initialize(better: :higher, ours: "chaton", peer: nil, **given) = super

    # @param verdict [Verdict]
    # @return [Array<(String, Float)>] label and figure of Chaton, then of its peer; [] when either is missing
    def bars(verdict)
      mine, others = figures(verdict).partition { |label, _| label.start_with?("chaton") }
      own = mine.find { |label, _| label.start_with?(ours) }
      other = (peer ? figures(verdict).select { |label, _| label.start_with?(peer) } : others)
        .public_send(better == :higher ? :max_by : :min_by, &:last)
      [own, other].all? ? [own, other] : []
    end

    # @return [String] "7.8 ×" better than the peer
    def advantage(bars)
      (_, mine), (_, other) = bars
      format("%.3g×", better == :higher ? mine / other : other / mine)
    end

    # @return [String] "72,068/s"
    def shown(figure) = "#{Bench.short(figure, thousands: true)}#{unit}"

    private

    def figures(verdict)
      verdict.medians.filter_map { |label, found| [label, found[metric.to_s]] if found[metric.to_s]&.positive? }
    end
  end
end
