# frozen_string_literal: true

require_relative "median"

module Bench
  # What a case's raw results mean: each server's medians, and whether each bar was met.
  class Verdict
    # Metrics where the greater figure is the better one.
    GREATER = %w[rate ideal rps jobs_per_s work_per_cpu_s full_rate mps].freeze

    attr_reader :raw, :a_case, :failed

    # @param a_case [#servers, #bars]
    # @param raw [Hash{String => Object}] as it was written
    def initialize(a_case, raw)
      @a_case = a_case
      @raw = raw
      failed, measured = raw.fetch("slices").partition { |slice| slice.key?("error") }
      @failed = failed.map { |slice| slice["server"] }.uniq
      @errors = failed.map { |slice| slice["error"].to_s.lines.first.to_s.chomp }.uniq
      @slices = measured.group_by { |slice| slice["server"] }
    end

    # @return [Array<String>] what was said by slices that came to nothing
    attr_reader :errors

    # @return [Hash{String => Hash{String => Float}}] medians by the server's label, in the order of the case
    def medians
      labels = a_case.servers.map(&:label)
      @medians ||= labels.filter_map { |label| [label, middle(label)] if @slices.key?(label) }.to_h
    end

    def ours = medians.select { |label, _| label.start_with?("chaton") }
    def peers = medians.reject { |label, _| label.start_with?("chaton") }

    # @param metric [String]
    # @return [String, nil] label of the best among the peers whose labels begin so
    def best_peer(metric, prefix = nil)
      found = (prefix ? medians : peers).select do |label, figures|
        figures.key?(metric) && (prefix.nil? || label == prefix || label.start_with?("#{prefix} "))
      end
      found.public_send(GREATER.include?(metric) ? :max_by : :min_by) { |_, figures| figures[metric] }&.first
    end

    # @return [Float, nil] the figure that the bar is about
    def figure(bar)
      metric = bar.metric.to_s
      label = bar.of || a_case.servers.first.label
      return unless medians.key?(label)
      return medians.dig(label, metric) unless bar.against
      pairs(metric, label, best_peer(metric, bar.against.is_a?(String) ? bar.against : nil))
    end

    # @return [Array<(Bar, Float, Boolean)>]
    def bars = a_case.bars.map { |bar| [bar, figure(bar), bar.met_by?(figure(bar))] }

    # A server that lost jobs has done nothing, however fast.
    def met? = bars.all?(&:last) && failed.empty?

    private

    def middle(label)
      slices = @slices.fetch(label)
      metrics = slices.first.select { |_, value| value.is_a?(Numeric) }.keys - %w[round jobs]
      metrics.to_h { |metric| [metric, Bench.median(slices.map { |slice| slice[metric] }).to_f] }
    end

    # Median of the ratios of each round.
    def pairs(metric, one, other)
      return Float::NAN unless other
      theirs = @slices.fetch(other).to_h { |slice| [slice["round"], slice[metric]] }
      pairs = @slices.fetch(one).select { |slice| theirs[slice["round"]] && slice[metric] }
      pairs.empty? ? Float::NAN : Bench.median(pairs.map { |slice| ratio(slice[metric], theirs[slice["round"]]) })
    end

    def ratio(one, other) = other.zero? ? Float::NAN : one.to_f / other
  end
end
