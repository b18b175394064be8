# frozen_string_literal: true

# Debian's Rails, without Bundler: only the parts this application uses.
require "rails"
require "active_record/railtie"
require "action_controller/railtie"
require "action_view/railtie"
require "action_cable/engine"

# A message board: a controller, a view, a model in SQLite, and a channel that broadcasts to every browser.
class Board < Rails::Application
  config.load_defaults 6.1
  config.root = File.expand_path("..", __dir__)
  config.eager_load = !Rails.env.development?
  config.cache_classes = !Rails.env.development?
  config.consider_all_requests_local = Rails.env.development?
  config.secret_key_base = ENV.fetch("SECRET_KEY_BASE") { SecureRandom.hex(64) }
  config.logger = ActiveSupport::Logger.new($stdout)
  config.log_level = Rails.env.development? ? :info : :warn
end
