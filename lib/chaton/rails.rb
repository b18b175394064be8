# frozen_string_literal: true

# Lets Rails find the adapter of `config.active_job.queue_adapter = :chaton`. `require "chaton"` loads this file if
# Rails is loaded already; Chaton's server always does.
require "active_support/lazy_load_hooks"

ActiveSupport.on_load(:active_job) { require "active_job/queue_adapters/chaton_adapter" }
