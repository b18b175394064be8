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
      # @return [Array<String, nil>] a jid for each job; nil where middleware stopped it or its lock is held
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

    # @return [Object, nil] what the application gave to `Sidekiq.redis=`
    def redis_pool = Sidekiq.redis_pool

    # Client middleware of this object: first that of the application; changes do not concern other objects.
    #
    # @yieldparam chain [Chaton::Jobs::Chain]
    # @return [Chaton::Jobs::Chain]
    def middleware
      @middleware ||= Chaton::Jobs.setup.client_middleware.dup
      yield @middleware if block_given?
      @middleware
    end

    # @return [String, nil]
    def push(item) = client.push(item)

    # @return [Array<String, nil>]
    def push_bulk(items) = client.push_bulk(items)

    # Cancels an iterable job.
    #
    # @return [Integer] the time, in seconds
    def cancel!(jid) = Chaton::IterableJob::IterationProgress.cancel(jid)

    private

    def client = @middleware ? Chaton::Jobs.client.with(@middleware) : Chaton::Jobs.client
  end
end
