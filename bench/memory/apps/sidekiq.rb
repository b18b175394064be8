# frozen_string_literal: true

require_relative "../../jobs/apps/sidekiq"
require_relative "payload"
