# frozen_string_literal: true

require_relative "../testing"

module Sidekiq
  # The modes and the jobs of {Chaton::Testing}. `Sidekiq::Testing.fake!` is said by the test, not by a require.
  Testing = Chaton::Testing

  # Jobs that wait in a test, by queue.
  module Queues
    # @param name [String]
    # @return [Array<Hash>]
    def self.[](name) = Chaton::Testing.jobs.select { |item| item["queue"] == name }

    # @return [void]
    def self.clear_all = Chaton::Testing.clear_all
  end

  EmptyQueueError = Chaton::Testing::EmptyQueueError

  # What {Job} itself is asked in tests.
  module Job
    class << self
      # @return [Array<Hash>]
      def jobs = Chaton::Testing.jobs

      # @return [void]
      def clear_all = Chaton::Testing.clear_all

      # @return [void]
      def drain_all = Chaton::Testing.drain_all
    end
  end
end
