# frozen_string_literal: true

require_relative "clock"
require_relative "extra"
require_relative "sidekiq_gem"

module Chaton
  module Jobs
    # What the sidekiq gem's client pushes goes through Chaton's client where that knows more: jobs with options of
    # Chaton (`sidekiq_options unique_for:, limit:, expires_in:, deadline:`), and with `reliable_push` all jobs, which
    # are then kept while Redis is away. It is prepended to Sidekiq::Client.
    module GemPushes
      # Generations of the gem in which each push ends in `raw_push`, with an Array of documents.
      GENERATIONS = 6..8

      class << self
        # @return [Boolean] whether all jobs are meant
        attr_reader :all

        # Called once the application is loaded.
        def install(plan, log)
          settings = plan.jobs.store_settings
          return unless SidekiqGem.loaded? && Config::StoreAddress.redis?(settings[:url])

          @all = !settings[:reliable_push].nil?
          client = ::Sidekiq::Client
          if GENERATIONS.cover?(::Sidekiq::VERSION.to_i) && client.private_method_defined?(:raw_push)
            client.prepend(self)
          elsif @all
            log.warn("reliable_push does not cover what this version of the sidekiq gem enqueues by itself",
                     version: ::Sidekiq::VERSION)
          end
        end
      end

      private

      def raw_push(payloads)
        ours = GemPushes.all || payloads.any? { |item| Options::EXTRA.any? { |name| item[name] } }
        return super if !ours || elsewhere?

        answers = Jobs.client.native.push_many(payloads.map { |item| row(item) })
        # An equal job holds its lock: the gem returns the jid that is left in the document.
        payloads.zip(answers) { |item, holder| item.delete("jid") if holder }
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
        lock = Extra.new(item, Clock.now_s).apply
        item["enqueued_at"] = Clock.stamp(Jobs.client.format) unless at
        document = at ? item.except("at", "enqueued_at") : item
        [item["queue"], JSON.generate(document, max_nesting: false), at&.to_f, lock, nil]
      end
    end
  end
end
