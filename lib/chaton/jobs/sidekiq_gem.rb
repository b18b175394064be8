# frozen_string_literal: true

module Chaton
  module Jobs
    # The sidekiq gem, if the application has loaded it. Its middleware, handlers and settings apply to jobs of Chaton
    # too, after Chaton's own. Versions 6 to 8 keep them in different places.
    module SidekiqGem
      # The gem's own error handler, which only logs; Chaton has logged the error already.
      OWN_LOGGER = "Sidekiq::ExceptionHandler::Logger"

      # What is loaded when its module is opened.
      FILE = File.expand_path("sidekiq_server.rb", __dir__)

      # Classes of its command line, by file. Blocks of `configure_server` set queues with the capsule (from version 7
      # on), and tracers extend the others: that has no effect here, but must not raise a NameError.
      SERVER_PARTS = { Capsule: "sidekiq/capsule", Launcher: "sidekiq/launcher", Manager: "sidekiq/manager",
                       Processor: "sidekiq/processor", Scheduled: "sidekiq/scheduled" }.freeze

      # Addresses of its Redis.
      SERVER = %r{\Arediss?://[^/@]+:\d+(?:/\d+)?\z}
      # The one that nobody has to name.
      DEFAULT = %r{\Aredis://(?:localhost|127\.0\.0\.1):6379(?:/0)?\z}

      class << self
        # Makes the gem believe that it runs in a server, from the first moment that the application, which the block
        # loads, opens its module. An application without the gem gets no such constant.
        #
        # @param server [Boolean] whether it is to
        def in_server(server)
          be_server if server && loaded?
          expected = server && bundled? && !::Object.const_defined?(:Sidekiq)
          ::Object.autoload(:Sidekiq, FILE) if expected
          yield
        ensure
          forget if expected
        end

        # Takes back what {in_server} prepared, where the gem was not loaded.
        def forget
          ::Object.send(:remove_const, :Sidekiq) if ::Object.autoload?(:Sidekiq) == FILE
        end

        # Gems ask for the version, so "chaton/sidekiq" has one too.
        def loaded?
          return false if ::Object.autoload?(:Sidekiq)

          !defined?(::Sidekiq::VERSION).nil? && defined?(::Sidekiq::CHATON).nil?
        end

        # @return [Object, nil] its chain, nil when it is empty
        def client_chain = chain(:client_middleware)

        def server_chain = chain(:server_middleware)

        # @return [Object, nil] the fourth argument of client middleware
        def redis_pool = configurable? ? ::Sidekiq.redis_pool : nil

        def error_handlers
          return [] unless loaded?

          config.error_handlers.reject { |handler| writes_log?(handler) }
        end

        def death_handlers = loaded? ? config.death_handlers : []

        def retries_max = configurable? ? settings[:max_retries] : nil

        # @return [Boolean] whether middleware raised it to say that the job is handled
        def handled?(error) = defined?(::Sidekiq::JobRetry::Handled) ? error.is_a?(::Sidekiq::JobRetry::Handled) : false

        def blocks(event) = loaded? ? Array(settings[:lifecycle_events]&.fetch(event, nil)) : []

        # @return [Hash{String=>Integer}, nil] weights by queue, 0 where the order counts; nil when Ruby code sets none
        def queues
          return unless configurable?
          return tally(settings[:queues]) unless config.respond_to?(:capsules)

          capsule = config.capsules["default"] or return
          weights = capsule.respond_to?(:weights) ? capsule.weights : tally(capsule.queues)
          weights unless weights.keys == ["default"]
        end

        # @return [Array<(String, Array<String>)>] name and queues of each further capsule, since version 7
        def capsules
          return [] unless loaded? && config.respond_to?(:capsules)

          config.capsules.except("default").map { |name, capsule| [name, capsule.queues.uniq] }
        end

        # @return [Integer, nil] nil when it is Sidekiq's default
        def concurrency
          return unless configurable?

          capsule = config.capsules["default"] if config.respond_to?(:capsules)
          number = capsule ? capsule.concurrency : settings[:concurrency]
          number unless number == default_concurrency
        end

        # Runs the block; meanwhile each line of the gem's logger has these facts.
        def with_context(facts, &) = ::Sidekiq::Context.with(facts, &)

        # Reads a member of a Hash through the gem's own connection, which is closed: processes are forked later.
        def read(key, member)
          ::Sidekiq.redis do |connection|
            connection.hget(key, member)
          ensure
            connection.close
          end
        end

        # @return [String, nil] the address of the gem's Redis without user and password; nil when it is Sidekiq's
        #   default, or no server's
        def redis_address
          ::Sidekiq.redis do |connection|
            # Of the redis gem; since version 7 Sidekiq uses another client, whose name is another.
            address = connection.id.to_s
            address = connection.config.server_url unless address.include?("://")
            address if SERVER.match?(address) && !DEFAULT.match?(address)
          ensure
            connection.close
          end
        rescue StandardError
          nil
        end

        # Makes `Sidekiq.server?` true, so that `configure_server` blocks run: it checks for the gem's command line.
        # That would also load the classes of {SERVER_PARTS}.
        def be_server
          ::Sidekiq.const_set(:CLI, Class.new) unless ::Sidekiq.const_defined?(:CLI, false)
          SERVER_PARTS.each do |name, file|
            ::Sidekiq.autoload(name, file) unless ::Sidekiq.const_defined?(name, false)
          end
        end

        # @return [Object] the third argument of error handlers since version 7
        def config = ::Sidekiq.respond_to?(:default_configuration) ? ::Sidekiq.default_configuration : ::Sidekiq

        private

        # @return [Boolean] whether the application may load the gem: without Bundler, whether it is installed
        def bundled?
          Gem.loaded_specs.key?("sidekiq") || (!defined?(::Bundler) && Gem::Specification.stubs_for("sidekiq").any?)
        end

        def chain(name)
          return unless loaded?

          found = config.public_send(name)
          found.any? ? found : nil
        end

        # Without the gem its names may still be there.
        def configurable? = loaded? || !defined?(::Sidekiq::CHATON).nil?

        def default_concurrency
          return ::Sidekiq::Config::DEFAULTS[:concurrency] if defined?(::Sidekiq::Config::DEFAULTS)

          ::Sidekiq::DEFAULTS[:concurrency] if defined?(::Sidekiq::DEFAULTS)
        end

        # Version 6 repeats the name of a queue as often as it weighs.
        def tally(names)
          return if names.nil? || names.empty?

          weights = names.map(&:to_s).tally
          weights.values.all?(1) ? weights.transform_values { 0 } : weights
        end

        def settings
          return config if config.respond_to?(:[])

          config.options
        end

        # In version 6 an object of that class, since 7 a constant.
        def writes_log?(handler)
          return true if handler.class.to_s == OWN_LOGGER

          defined?(::Sidekiq::Config::ERROR_HANDLER) ? handler.equal?(::Sidekiq::Config::ERROR_HANDLER) : false
        end
      end
    end
  end
end
