# frozen_string_literal: true

require "sidekiq"

# Sidekiq at its best: no line per job, and none of redis-rb's about ways of Sidekiq's own.
Redis.silence_deprecations = true
Sidekiq.logger.level = Logger::ERROR
require_relative "jobs" if Sidekiq.server?
