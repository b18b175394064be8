# frozen_string_literal: true

require "sidekiq"

# Sidekiq's fastest setup: no log line per job, and no deprecation warnings of redis-rb about Sidekiq's calls.
Redis.silence_deprecations = true
Sidekiq.logger.level = Logger::ERROR
require_relative "jobs" if Sidekiq.server?
