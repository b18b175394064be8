# frozen_string_literal: true

require "logger"
require "action_controller/railtie"
require_relative "speaker"

# A small Rails application in production mode: its streams are in the controller of chaton_rails.ru or puma_rails.ru.
class App < Rails::Application
  config.root = __dir__
  config.cache_classes = true
  config.eager_load = true
  config.secret_key_base = "0" * 64
  config.hosts.clear
  config.log_level = :warn
  config.logger = ActiveSupport::Logger.new($stderr)
  config.active_support.deprecation = :silence
end

# What the benchmark itself asks for.
class BenchController < ActionController::Base
  def pid = render(plain: Process.pid.to_s)
  def say = render(plain: SPEAKER.say(request.query_string))
end

App.initialize!
Rails.application.routes.draw do
  root to: "bench#pid"
  get "/say", to: "bench#say"
  get "/s/:id", to: "streams#show"
end
