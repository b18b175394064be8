# frozen_string_literal: true

# Lets Rails find the adapter of `config.active_job.queue_adapter = :chaton`, and lets threads wait for SQLite without
# stopping each other. `require "chaton"` loads this file if Rails is loaded already; Chaton's server always does.
require "active_support/lazy_load_hooks"

ActiveSupport.on_load(:active_job) { require "active_job/queue_adapters/chaton_adapter" }

ActiveSupport.on_load(:active_record_sqlite3adapter) do
  if ActiveRecord::VERSION::MAJOR < 8
    require_relative "sqlite_busy_handler"
    prepend Chaton::SqliteBusyHandler
  end
end
