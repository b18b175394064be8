# frozen_string_literal: true

require_relative "clock"
require_relative "sidekiq_gem"

module Chaton
  module Jobs
    # With `reliable_push`, jobs that the sidekiq gem's client pushes go through Chaton's client, which keeps them while
    # Redis is away. It is prepended to Sidekiq::Client.
    module GemPushes
      # Generations of the gem in which each push ends in `raw_push`, with an Array of documents.
      GENERATIONS = 6..8

      # Called once the application is loaded.
      def self.install(plan, log)
        settings = plan.jobs.store_settings
        return unless settings[:reliable_push] && SidekiqGem.loaded? && !settings[:url].start_with?("sqlite")

        client = ::Sidekiq::Client
        if GENERATIONS.cover?(::Sidekiq::VERSION.to_i) && client.private_method_defined?(:raw_push)
          client.prepend(self)
        else
          log.warn("reliable_push does not cover what this version of the sidekiq gem enqueues by itself",
                   version: ::Sidekiq::VERSION)
        end
      end

      private

      def raw_push(payloads)
        return super if elsewhere?

        Jobs.client.native.push_many(payloads.map { |item| row(item) })
        true
      end

      # @return [Boolean] whether another Redis is meant (`via`, or the option `pool`), or none, as in a test
      def elsewhere?
        return true if defined?(::Sidekiq::Testing) && ::Sidekiq::Testing.enabled?

        !redis_pool.equal?(::Sidekiq.redis_pool)
      end

      # @return [Array] as {Push#to_a}
      def row(item)
        at = item["at"]
        item["enqueued_at"] = Clock.stamp(Jobs.client.format) unless at
        document = at ? item.except("at", "enqueued_at") : item
        [item["queue"], JSON.generate(document, max_nesting: false), at&.to_f, nil, nil]
      end
    end
  end
end
