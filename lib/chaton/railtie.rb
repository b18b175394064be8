# frozen_string_literal: true

require_relative "native_library"
require_relative "rails"

module Chaton
  # Chaton in a Rails application, in each of its processes: server, console, runner, rake, another server.
  #
  # `config.chaton.store` and `config.chaton.broker` do what {Jobs::Setup#store} and {Streams::Setup#broker} do in an
  # initializer.
  class Railtie < ::Rails::Railtie
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
      Jobs.read_settings if app.config.eager_load && adapter.to_s == "chaton"
    end

    rake_tasks { load File.expand_path("rails/tasks.rake", __dir__) }
  end
end
