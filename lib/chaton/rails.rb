# frozen_string_literal: true

# Lets Rails find the adapter of `config.active_job.queue_adapter = :chaton`. `require "chaton"` does it by itself
# where Rails was loaded before; a server of Chaton's does it in any case.
require "active_support/lazy_load_hooks"

ActiveSupport.on_load(:active_job) { require "active_job/queue_adapters/chaton_adapter" }
