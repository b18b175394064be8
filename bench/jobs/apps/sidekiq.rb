# frozen_string_literal: true

require "sidekiq"

# Sidekiq's fastest setup: no log line per job, and no deprecation warnings of redis-rb, which Sidekiq 6 calls.
Redis.silence_deprecations = true if defined?(Redis)
Sidekiq.logger.level = Logger::ERROR
require_relative "jobs" if Sidekiq.server?
