# frozen_string_literal: true

# Lets Rails find the adapter of `config.active_job.queue_adapter = :chaton`, and lets threads wait for SQLite without
# stopping each other. `require "chaton"` loads this file where ActiveSupport is loaded already, with {Chaton::Railtie}
# in a Rails application.
require "active_support/lazy_load_hooks"

ActiveSupport.on_load(:active_job) { require "active_job/queue_adapters/chaton_adapter" }

ActiveSupport.on_load(:action_controller) do
  require_relative "rails/event_streams"
  include Chaton::RailsEventStreams::Controller
end
ActiveSupport.on_load(:action_controller_base) do
  require_relative "rails/event_streams"
  prepend Chaton::RailsEventStreams::Moment
end
ActiveSupport.on_load(:action_view) do
  require_relative "rails/event_streams"
  include Chaton::RailsEventStreams::View
end
ActiveSupport.on_load(:active_record) do
  require_relative "rails/event_streams"
  extend Chaton::RailsEventStreams::Model
end

ActiveSupport.on_load(:active_record_sqlite3adapter) do
  if ActiveRecord::VERSION::MAJOR < 8
    require_relative "rails/sqlite_busy_handler"
    prepend Chaton::SqliteBusyHandler
  end
end

# `rails server` became the `chaton` command, and its log is to stay on the terminal.
if ENV["CHATON_RAILS_LOG_TO_STDOUT"]
  ActiveSupport.on_load(:after_initialize) do
    console = ActiveSupport::Logger.new($stdout, level: Rails.logger.level, formatter: Rails.logger.formatter)
    if ActiveSupport::Logger.logger_outputs_to?(Rails.logger, $stderr, $stdout)
      next
    elsif Rails.logger.respond_to?(:broadcast_to)
      Rails.logger.broadcast_to(console)
    else
      Rails.logger.extend(ActiveSupport::Logger.broadcast(console))
    end
  end
end
