# frozen_string_literal: true

module Chaton
  module Jobs
    # The sidekiq gem, where an application has loaded it: its middleware, handlers and settings count for the
    # jobs that Chaton pushes and runs too, after our own. Versions 6 to 8 keep them in different places.
    module SidekiqGem
      # Its own handler writes what ours has written already.
      OWN_LOGGER = "Sidekiq::ExceptionHandler::Logger"

      class << self
        # "chaton/sidekiq" defines no version, because it is none.
        # @return [Boolean]
        def loaded? = !defined?(::Sidekiq::VERSION).nil?

        # @return [Object, nil] its chain, nil where it is empty
        def client_chain = chain(:client_middleware)

        # @return [Object, nil]
        def server_chain = chain(:server_middleware)

        # @return [Object, nil] what client middleware gets as its fourth argument
        def redis_pool = loaded? ? ::Sidekiq.redis_pool : nil

        # @return [Array<#call>]
        def error_handlers
          return [] unless loaded?

          config.error_handlers.reject { |handler| writes_log?(handler) }
        end

        # @return [Array<#call>]
        def death_handlers = loaded? ? config.death_handlers : []

        # @return [Integer, nil]
        def retries_max = loaded? ? settings[:max_retries] : nil

        # @param error [Exception]
        # @return [Boolean] whether it only says that a job has been dealt with, as middleware does
        def handled?(error) = defined?(::Sidekiq::JobRetry::Handled) ? error.is_a?(::Sidekiq::JobRetry::Handled) : false

        # @param event [Symbol]
        # @return [Array<Proc>]
        def blocks(event) = loaded? ? Array(settings[:lifecycle_events]&.fetch(event, nil)) : []

        # What `Sidekiq.server?` asks is whether its command line is there. It says yes from now on, so that
        # `configure_server` blocks run.
        #
        # @return [void]
        def be_server
          ::Sidekiq.const_set(:CLI, Class.new) unless ::Sidekiq.const_defined?(:CLI, false)
        end

        # @return [Object] a third argument for handlers of version 7 and 8
        def config = ::Sidekiq.respond_to?(:default_configuration) ? ::Sidekiq.default_configuration : ::Sidekiq

        private

        def chain(name)
          return unless loaded?

          found = config.public_send(name)
          found.any? ? found : nil
        end

        def settings
          return config if config.respond_to?(:[])

          config.options
        end

        # An object of a class in version 6, a constant from 7 on.
        def writes_log?(handler)
          return true if handler.class.to_s == OWN_LOGGER

          defined?(::Sidekiq::Config::ERROR_HANDLER) ? handler.equal?(::Sidekiq::Config::ERROR_HANDLER) : false
        end
      end
    end
  end
end
