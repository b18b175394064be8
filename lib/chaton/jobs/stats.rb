# frozen_string_literal: true

module Chaton
  module Jobs
    # Counters and sizes of a store, read together.
    #
    # @example
    #   Chaton::Jobs::Stats.new.enqueued
    class Stats
      # What there is to read.
      NAMES = %i[processed failed enqueued scheduled retries dead in_flight processes].freeze

      # @param native [Native::JobsClient]
      def initialize(native = Jobs.client.native)
        @values = native.stats.freeze
        @native = native
      end

      # @!method processed
      #   @return [Integer] jobs ended since the store was made, failures included
      # @!method failed
      #   @return [Integer] of these, failed
      # @!method enqueued
      #   @return [Integer] jobs waiting in all queues
      # @!method scheduled
      #   @return [Integer] jobs waiting for their time
      # @!method retries
      #   @return [Integer] failed jobs waiting for their time
      # @!method dead
      #   @return [Integer] jobs that failed for good and were kept
      # @!method in_flight
      #   @return [Integer] jobs that workers have taken
      # @!method processes
      #   @return [Integer] living workers
      NAMES.each { |name| define_method(name) { @values.fetch(name) } }

      # @return [Hash{String=>Integer}] size by queue
      def queues = @native.queues.to_h { |queue| [queue[:name], queue[:size]] }

      # @return [Hash{Symbol=>Integer}]
      def to_h = @values
    end
  end
end
