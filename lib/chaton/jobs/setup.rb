# frozen_string_literal: true

require "forwardable"
require_relative "chain"

module Chaton
  module Jobs
    # What an application has registered: client and server middleware, handlers, and blocks for events.
    class Setup
      extend Forwardable

      # The logger of jobs.
      def_delegators "Chaton::Jobs", :logger, :logger=

      # Events of a worker, as in Sidekiq: heartbeat once, after the start; beat every 10 s.
      EVENTS = %i[startup heartbeat beat quiet shutdown exit].freeze

      # @return [Array<#call>] called with `(error, context)`, and with this setup if they take three arguments
      attr_reader :error_handlers
      # @return [Array<#call>] called with `(job hash, error)` when a job fails for good
      attr_reader :death_handlers
      # @return [Symbol] what becomes of arguments that JSON does not bring back: :raise, :warn or :allow
      # @see Arguments.accept
      # @private
      attr_accessor :complex_arguments

      # @return [Array<String>] names of job classes with `options transaction: true`
      # @private
      attr_accessor :with_transaction

      # @return [Hash{Symbol=>Object}] what {#store} was given
      # @private
      attr_reader :given

      def initialize
        @given = {}
        @with_transaction = []
        @client_middleware = Chain.new
        @server_middleware = Chain.new
        @error_handlers = []
        @death_handlers = []
        @complex_arguments = :raise
        @events = EVENTS.to_h { |name| [name, []] }
      end

      # Names the store where the application does, for an address or a password that config/chaton.rb cannot know. It
      # goes before the `store` of that file, in every process that loads the application.
      #
      # @example
      #   Chaton::Jobs.configure { |config| config.store Rails.application.credentials.redis_url }
      # @param url [String] as in config/chaton.rb
      # @param settings [Hash{Symbol=>Object}] further options of the store: `password:`, `tls_ca_file:` …
      # @raise [ConfigError]
      def store(url, **settings)
        @given = Chaton.check_settings(:jobs, { store: url, **settings })
        Jobs.swap_client(nil) if Jobs.setup.equal?(self)
      end

      # Middleware around a push: `call(class or name, job hash, queue, pool) { … }`; a falsy result stops it.
      #
      # @yieldparam chain [Chain]
      # @return [Chain]
      def client_middleware
        yield @client_middleware if block_given?
        @client_middleware
      end

      # Middleware around a run: `call(instance, job hash, queue) { … }`.
      #
      # @yieldparam chain [Chain]
      # @return [Chain]
      def server_middleware
        yield @server_middleware if block_given?
        @server_middleware
      end

      # @param event [Symbol] one of {EVENTS}
      def on(event, &block)
        @events.fetch(event) do
          raise ArgumentError, "there is no event #{event.inspect}; there are #{EVENTS.map(&:inspect).join(", ")}"
        end << block
      end

      # @param event [Symbol]
      # @return [Array<Proc>]
      # @private
      def blocks(event) = @events.fetch(event)
    end
  end
end
