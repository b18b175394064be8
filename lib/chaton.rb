# frozen_string_literal: true

require_relative "chaton/errors"
require_relative "chaton/version"

# Requiring "chaton" is cheap: it starts nothing and loads neither the native extension nor Rack. The classes for jobs
# and consumers are loaded when they are first used. The command line is "chaton/cli", the configuration
# "chaton/config"; the service loads the engines.
module Chaton
  autoload :Batch, "chaton/batch"
  autoload :Consumer, "chaton/consumer"
  autoload :Dashboard, "chaton/dashboard"
  autoload :IterableJob, "chaton/iterable_job"
  autoload :Job, "chaton/job"
  autoload :Jobs, "chaton/jobs"
  autoload :Logger, "chaton/logger"
  autoload :Streams, "chaton/streams"
  autoload :Testing, "chaton/testing"

  extend Streams::Producing

  # Reads the configuration in a process that is not a Chaton server: CHATON_CONFIG, else config/chaton.rb. ENV stays as
  # it is. In a Rails application the environment is Rails.env.
  #
  # @return [Config::Plan]
  # @raise [ConfigError]
  def self.read_configuration
    require "chaton/config"
    Config.of_client
  end
end

# If Rails is loaded already, `queue_adapter = :chaton` finds its adapter.
require_relative "chaton/rails" if defined?(ActiveSupport) && ActiveSupport.respond_to?(:on_load)

# `rails server` requires the Gemfile's gems before it looks for a server. Chaton serves on Linux only.
if defined?(Rails::Server) && RUBY_PLATFORM.include?("linux")
  require_relative "chaton/rails/server"
  Chaton::RailsServer.install(Rails::Server)
end
