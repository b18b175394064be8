# frozen_string_literal: true

require "forwardable"
require_relative "../batch"
require_relative "../iterable_job"
require_relative "../jobs/shutdown"
require_relative "job"
require_relative "job_options"
require_relative "client"
require_relative "api"

# Sidekiq's names on top of Chaton; see "chaton/sidekiq".
module Sidekiq
  autoload :Testing, "chaton/sidekiq/testing"
  autoload :Queues, "chaton/sidekiq/testing"

  # Marks this module, which the gem's has not.
  CHATON = true
  # The version of Sidekiq whose names these are: gems for Sidekiq ask for it.
  VERSION = "8.1.0"
  # The first number of {VERSION}.
  MAJOR = 8
  Batch = Chaton::Batch
  Shutdown = Chaton::Jobs::Shutdown

  # Methods that middleware may call.
  module ServerMiddleware
    attr_accessor :config

    # @return [#info]
    def logger = Sidekiq.logger
  end
  # As {ServerMiddleware}.
  ClientMiddleware = ServerMiddleware

  @job_options = Chaton::Jobs::Options::DEFAULTS
  @options = {}

  class << self
    extend Forwardable

    def_delegators "Chaton::Jobs.setup", :client_middleware, :server_middleware, :error_handlers, :death_handlers, :on
    def_delegators "Chaton::Jobs", :logger, :logger=

    # @return [Hash{Symbol=>Object}] settings that the application wrote; Chaton reads queues and concurrency
    attr_reader :options

    def gem_version = Gem::Version.new(VERSION)

    # @return [Sidekiq] itself: it holds the settings
    def default_configuration = self

    # @return [Boolean] whether this process runs jobs
    def server? = Chaton::Jobs::Runtime.server?

    # @yieldparam config [Sidekiq]
    def configure_server
      yield self if server?
    end

    # @yieldparam config [Sidekiq]
    def configure_client
      yield self unless server?
    end

    # @return [Hash{String=>Object}] options of a job class that sets none
    def default_job_options = @job_options
    alias default_worker_options default_job_options

    # @param options [Hash]
    def default_job_options=(options)
      @job_options = @job_options.merge(options.transform_keys(&:to_s)).freeze
    end
    alias default_worker_options= default_job_options=

    # @param mode [Symbol, false] what becomes of arguments that JSON does not bring back equal, such as Symbols:
    #   :raise is the default; :warn and false store what JSON makes of them
    def strict_args!(mode = :raise)
      Chaton::Jobs.setup.complex_arguments = mode || :allow
    end

    # @return [Object] a setting that the application wrote
    def [](name) = @options[name]

    # @return [Object]
    def []=(name, value)
      @options[name] = value
    end

    # @param names [Array<String>] repeated by their weight
    def queues=(names)
      @options[:queues] = names
    end

    # @param number [Integer] of threads
    def concurrency=(number)
      @options[:concurrency] = number
    end

    # @return [#with, nil] what {#redis=} has set
    attr_reader :redis_pool

    # Sets a pool of connections for {#redis} and for client middleware, such as
    # `ConnectionPool.new(size: 5) { Redis.new(url: "…") }`. Jobs are enqueued to the store of `jobs { store … }`.
    # Anything else only warns.
    def redis=(pool)
      usable = pool.nil? || pool.respond_to?(:with)
      @redis_pool = pool if usable
      return if usable

      logger.warn("Sidekiq.redis = … has no effect with Chaton: write jobs { store \"redis://…\" } into " \
                  "config/chaton.rb")
    end

    # Yields a connection of the application's own pool.
    #
    # @raise [NotImplementedError] when it has set none
    def redis(&block)
      return redis_pool.with(&block) if redis_pool

      raise NotImplementedError, "Sidekiq.redis needs the sidekiq gem, or a pool of your own: Sidekiq.redis = " \
                                 "ConnectionPool.new { Redis.new(url: \"…\") }; Chaton's store need not be a Redis"
    end

    # @return [Object]
    def load_json(text) = JSON.parse(text)

    # @return [String]
    def dump_json(object) = JSON.generate(object)
  end
end
