# frozen_string_literal: true

module Chaton
  class Batch
    # The counts of a batch when they were read.
    class Status
      attr_reader :bid

      # @param bid [String]
      # @raise [Error] when there is no such batch
      def initialize(bid)
        @bid = bid
        @facts = Jobs.client.native.batch(bid) or
          raise Error, "there is no batch #{bid}: it never had jobs, or has been removed"
      end

      # @return [Integer] jobs ever added
      def total = @facts.fetch(:total)

      # @return [Integer] jobs that have not succeeded
      def pending = @facts.fetch(:pending)

      # @return [Integer] jobs whose last run failed
      def failures = @facts.fetch(:failures)

      # @return [Array<String>] their jids (at most 1,000)
      def failed_jids = @facts.fetch(:failed_jids)
      alias failure_info failed_jids

      # @return [Integer] nested batches that have not succeeded
      def children_pending = @facts.fetch(:children_pending)
      alias child_count children_pending

      # @return [String]
      def description = @facts.fetch(:description)

      # @return [String, nil]
      def parent_bid = @facts.fetch(:parent)

      # @return [Status, nil]
      def parent_batch = parent_bid && Status.new(parent_bid)

      # @return [Time]
      def created_at = Time.at(@facts.fetch(:created_at))

      # @return [Boolean] whether all its jobs have run at least once
      def complete? = @facts.fetch(:complete)

      # @return [Boolean] whether all its jobs have succeeded
      def success? = @facts.fetch(:success)

      # @return [Boolean] whether one of its jobs has failed for good
      def dead? = @facts.fetch(:dead)

      # @return [Hash{Symbol=>Object}]
      def data = @facts.dup
    end
  end
end
