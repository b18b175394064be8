# frozen_string_literal: true

require_relative "../jobs/client"

module Sidekiq
  # Pushes Hashes.
  class Client
    class << self
      # @param item [Hash{String=>Object}] with class and args
      # @return [String, nil] its jid
      def push(item) = Chaton::Jobs.client.push(item)

      # @param items [Hash{String=>Object}] with an Array of argument lists
      # @return [Array<String>]
      def push_bulk(items) = Chaton::Jobs.client.push_bulk(items)

      # @return [String, nil]
      def enqueue(klass, *args) = klass.perform_async(*args)

      # @return [String, nil]
      def enqueue_to(queue, klass, *args) = klass.set(queue: queue).perform_async(*args)

      # @return [String, nil]
      def enqueue_in(interval, klass, *args) = klass.perform_in(interval, *args)

      # @return [String, nil]
      def enqueue_to_in(queue, interval, klass, *args) = klass.set(queue: queue).perform_in(interval, *args)

      # @raise [NotImplementedError] always
      def via(_pool) = raise(NotImplementedError, "a Chaton client has one store; run a process for each")
    end

    # Ignores a pool: there is one store.
    def initialize(*, **); end

    # @return [String, nil]
    def push(item) = self.class.push(item)

    # @return [Array<String>]
    def push_bulk(items) = self.class.push_bulk(items)

    # Cancels an iterable job.
    #
    # @return [Integer] the time, in seconds
    def cancel!(jid) = Chaton::IterableJob::IterationProgress.cancel(jid)
  end
end
