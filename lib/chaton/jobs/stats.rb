# frozen_string_literal: true

module Chaton
  module Jobs
    # Counters and sizes of a store, read at once.
    #
    # @example
    #   Chaton::Jobs::Stats.new.enqueued
    class Stats
      # Names of the statistics.
      NAMES = %i[processed failed enqueued scheduled retries dead in_flight processes].freeze

      # @param native [Native::JobsClient]
      def initialize(native = Jobs.client.native)
        @values = native.stats.freeze
        @native = native
      end

      # @!method processed
      #   @return [Integer] jobs ended, failures included
      # @!method failed
      #   @return [Integer] failed jobs among them
      # @!method enqueued
      #   @return [Integer] jobs waiting in all queues
      # @!method scheduled
      #   @return [Integer] scheduled jobs
      # @!method retries
      #   @return [Integer] failed jobs waiting for a retry
      # @!method dead
      #   @return [Integer] jobs in the dead set
      # @!method in_flight
      #   @return [Integer] jobs claimed by workers
      # @!method processes
      #   @return [Integer] running workers
      NAMES.each { |name| define_method(name) { @values.fetch(name) } }

      # @return [Hash{String=>Integer}] size by queue
      def queues = @native.queues.to_h { |queue| [queue[:name], queue[:size]] }

      # @return [Hash{Symbol=>Integer}]
      def to_h = @values
    end
  end
end
