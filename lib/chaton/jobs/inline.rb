# frozen_string_literal: true

require "json"
require "securerandom"

module Chaton
  module Jobs
    # Runs a job in the calling thread without a store: with all middleware, its arguments through JSON and back.
    module Inline
      class << self
        # @return [true, nil] nil when client or server middleware stopped it
        def run(klass, declared, args)
          args = Arguments.accept(declared.class_name, args, Jobs.setup.complex_arguments)
          Arguments.check(declared.class_name, args)
          item = declared.item(args).except(*Options::EXTRA)
          item.update("jid" => SecureRandom.hex(Client::JID_BYTES), "created_at" => Clock.now_s)
          chain = SidekiqGem.client_chain
          pool = SidekiqGem.redis_pool if chain || !Jobs.setup.client_middleware.empty?
          wanted = Jobs.setup.client_middleware.invoke(klass, item, item["queue"], pool) do
            chain ? chain.invoke(klass, item, item["queue"], pool) { item } : item
          end
          perform(JSON.parse(JSON.generate(item, max_nesting: false), max_nesting: false)) if wanted
        end

        # @param item [Hash{String=>Object}] a job document
        # @return [true, nil] nil when server middleware stopped it
        def perform(item)
          instance = JobClass.constant(item["class"]).new
          instance.jid = item["jid"] if instance.respond_to?(:jid=)
          instance.bid = item["bid"] if instance.respond_to?(:bid=)
          around(Jobs.setup.server_middleware, SidekiqGem.server_chain, instance, item) do
            instance.perform(*item["args"])
            true
          end
        end

        private

        def around(own, gem_chain, instance, item, &block)
          own.invoke(instance, item, item["queue"]) do
            gem_chain ? gem_chain.invoke(instance, item, item["queue"], &block) : yield
          end
        end
      end
    end
  end
end
