# frozen_string_literal: true

require_relative "native_library"
require_relative "rails"

module Chaton
  # Chaton in a Rails application, in each of its processes: server, console, runner, rake, another server.
  #
  # `config.chaton.store` and `config.chaton.broker` do what {Jobs::Setup#store} and {Streams::Setup#broker} do in an
  # initializer.
  class Railtie < ::Rails::Railtie
    # Rails' own defaults enqueue after the commit since this version.
    RAILS_8_2 = Gem::Version.new("8.2")

    config.chaton = ActiveSupport::OrderedOptions.new

    if defined?(::Rails::Server) && NativeLibrary.new.system?
      require_relative "rails/server"
      RailsServer.install
    end
    config.before_configuration { RailsServer.become_command if defined?(RailsServer) }

    # Before the application's initializers, which may enqueue and have the last word.
    initializer "chaton.settings", before: :load_config_initializers do |app|
      store, broker = app.config.chaton.values_at(:store, :broker)
      Jobs.configure { |jobs| jobs.store(store) } if store
      Streams.configure { |streams| streams.broker(broker) } if broker
    end

    # The configuration is read at boot, not in the first request that enqueues.
    config.after_initialize do |app|
      adapter = app.config.active_job.queue_adapter if app.config.respond_to?(:active_job)
      next unless adapter.to_s == "chaton"

      Jobs.read_settings if app.config.eager_load
      Railtie.enqueue_in_transactions(app.config)
    end

    # Where jobs are in PostgreSQL, the transaction that is open stores them, and no crash falls between the two.
    #
    # @param config [Rails::Application::Configuration]
    # @private
    def self.enqueue_in_transactions(config)
      by_default = config.active_job[:enqueue_after_transaction_commit] == true && config.loaded_config_version &&
                   Gem::Version.new(config.loaded_config_version) >= RAILS_8_2
      return unless by_default && Jobs.settings.store.start_with?("postgres")

      config.active_job.enqueue_after_transaction_commit = false
      ActiveSupport.on_load(:active_job) { self.enqueue_after_transaction_commit = false }
      ::Rails.logger&.info("jobs are stored in the open transaction, and not after it " \
                           "(enqueue_after_transaction_commit = false); a class that wants that sets it to true")
    end

    rake_tasks { load File.expand_path("rails/tasks.rake", __dir__) }
  end
end
