# frozen_string_literal: true

require "date"
require_relative "../jobs/stats"

module Sidekiq
  # Sidekiq's names for some of the counters.
  class Stats < Chaton::Jobs::Stats
    # A queue in {#queue_summaries}.
    QueueSummary = Struct.new(:name, :size, :latency, :paused) do # rubocop:disable Lint/StructNewOverride
      alias_method :paused?, :paused
    end

    alias scheduled_size scheduled
    alias retry_size retries
    alias dead_size dead
    alias processes_size processes

    # @return [Integer] running jobs
    def workers_size = @native.processes.sum { |process| process[:busy] }

    # @return [Float] age of the next job of the queue "default", in seconds
    def default_queue_latency = queue_summaries.find { |queue| queue.name == "default" }&.latency || 0.0

    # @return [Array<QueueSummary>] the longest first
    def queue_summaries
      found = @native.queues.map { |queue| QueueSummary.new(*queue.values_at(:name, :size, :latency_s, :paused)) }
      found.sort_by { |queue| -queue.size }
    end

    # Sets counters to 0.
    #
    # @param names [Array<#to_s>] "processed", "failed"; none: both
    def reset(*names)
      all = %w[processed failed]
      wanted = names.empty? ? all : all & names.flatten.map(&:to_s)
      wanted.each { |name| @native.reset_counter(name) }
    end

    # Counts of days, which only Redis keeps.
    class History
      # Days that are kept.
      DAYS_MAX = 5 * 365

      # @param days [Integer]
      # @param start [Date, nil] the last of them; nil: today, UTC
      # @raise [ArgumentError] for more days than are kept
      def initialize(days, start = nil, native: Chaton::Jobs.client.native)
        raise ArgumentError, "days must be 1 to #{DAYS_MAX}" unless (1..DAYS_MAX).cover?(days)

        start ||= Time.now.utc.to_date
        @days = (0...days).map { |back| (start - back).strftime("%Y-%m-%d") }
        @native = native
      end

      # @return [Hash{String=>Integer}] jobs ended, by day
      def processed = @days.zip(counts.map(&:first)).to_h

      # @return [Hash{String=>Integer}] failed jobs among them
      def failed = @days.zip(counts.map(&:last)).to_h

      private

      def counts = @counts ||= @native.daily_counts(@days)
    end
  end
end
