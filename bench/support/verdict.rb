# frozen_string_literal: true

require_relative "numbers"

module Bench
  # The medians of a case's raw results by server, and whether each bar was met.
  class Verdict
    # Metrics of which the greater figure is the better one.
    GREATER = %w[rate ideal rps steady_rps beside_rps jobs_per_s work_per_cpu_s full_rate mps deliveries kept].freeze
    # One round is enough to fail these, so they are not shown by their median.
    WORST = %w[failed cut lost different missed unreceived repeated gaps unreturned].freeze

    # `failed` has the labels of servers with failed slices, `errors` their messages.
    attr_reader :raw, :a_case, :failed, :errors

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

    # @return [Hash{String => Hash{String => Float}}] medians by the server's label, in the order of the case. A server
    #   that the case does not have here was measured on another Ruby, whose Rails has another number of threads.
    def medians
      labels = a_case.servers.map(&:label) | @slices.keys
      @medians ||= labels.filter_map { |label| [label, medians_of(label)] if @slices.key?(label) }.to_h
    end

    def ours = medians.select { |label, _| label.start_with?("chaton") }
    def peers = medians.reject { |label, _| label.start_with?("chaton") }

    # @return [Hash{String => Float}, nil] the medians of the case's first Chaton
    def own = ours.values.first

    # @param metric [String]
    # @return [String, nil] label of the best peer, or of the best server whose label begins with the prefix
    def best_peer(metric, prefix = nil)
      found = (prefix ? medians : peers).select do |label, figures|
        figures.key?(metric) && (prefix.nil? || label == prefix || label.start_with?("#{prefix} "))
      end
      found.public_send(GREATER.include?(metric) ? :max_by : :min_by) { |_, figures| figures[metric] }&.first
    end

    # @return [Float, nil] the figure that the bar is compared with
    def figure(bar)
      metric = bar.metric.to_s
      label = bar.of || a_case.servers.first.label
      return unless medians.key?(label)
      return medians.dig(label, metric) unless bar.against
      ratio_of_rounds(metric, label, best_peer(metric, bar.against.is_a?(String) ? bar.against : nil))
    end

    # @return [Array<(Bar, Float, Boolean)>]
    def bars = a_case.bars.map { |bar| [bar, figure(bar), bar.met_by?(figure(bar))] }

    # The row of a server that lost jobs falls short, however fast the server was.
    def met? = bars.all?(&:last) && failed.empty?

    private

    def medians_of(label)
      slices = @slices.fetch(label)
      metrics = slices.flat_map { |slice| slice.select { |_, value| value.is_a?(Numeric) }.keys }.uniq - %w[round jobs]
      metrics.to_h do |metric|
        values = slices.filter_map { |slice| slice[metric] }
        [metric, (WORST.include?(metric) ? values.max : Bench.median(values)).to_f]
      end
    end

    # @return [Float] the median of the ratios of each round
    def ratio_of_rounds(metric, one, other)
      return Float::NAN unless other
      theirs = @slices.fetch(other).to_h { |slice| [slice["round"], slice[metric]] }
      pairs = @slices.fetch(one).select { |slice| theirs[slice["round"]] && slice[metric] }
      pairs.empty? ? Float::NAN : Bench.median(pairs.map { |slice| ratio(slice[metric], theirs[slice["round"]]) })
    end

    def ratio(one, other) = other.nil? || other.zero? ? Float::NAN : one.to_f / other
  end
end
