# frozen_string_literal: true

require_relative "../testing"

module Sidekiq
  # See {Chaton::Testing}. A test calls `Sidekiq::Testing.fake!` itself; the require does not.
  Testing = Chaton::Testing

  # Jobs waiting in a test, by queue.
  module Queues
    # @param name [String]
    # @return [Array<Hash>]
    def self.[](name) = Chaton::Testing.jobs.select { |item| item["queue"] == name }

    def self.clear_all = Chaton::Testing.clear_all
  end

  EmptyQueueError = Chaton::Testing::EmptyQueueError

  # Methods for tests.
  module Job
    class << self
      # @return [Array<Hash>]
      def jobs = Chaton::Testing.jobs

      def clear_all = Chaton::Testing.clear_all

      def drain_all = Chaton::Testing.drain_all
    end
  end
end
