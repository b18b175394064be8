# frozen_string_literal: true

require_relative "errors"
require_relative "version"

# What all of Chaton needs. Requiring it is cheap: it starts nothing and loads neither the native extension nor Rack.
# The classes for jobs and consumers are loaded when they are first used. The command line is "chaton/cli", the
# configuration "chaton/config"; the service loads the engines. An application requires "chaton": that adds Rails' part.
module Chaton
  autoload :Batch, "chaton/batch"
  autoload :Consumer, "chaton/consumer"
  autoload :Dashboard, "chaton/dashboard"
  autoload :EventStream, "chaton/event_stream"
  autoload :IterableJob, "chaton/iterable_job"
  autoload :Job, "chaton/job"
  autoload :Jobs, "chaton/jobs"
  autoload :Live, "chaton/live"
  autoload :Logger, "chaton/logger"
  autoload :Server, "chaton/server"
  autoload :Streams, "chaton/streams"
  autoload :Testing, "chaton/testing"

  extend Streams::Producing
  extend Live::Broadcasting

  # @see Config.check
  # @private
  def self.check_settings(section, given)
    require_relative "config"
    Config.check(section, given)
  end

  # Reads the configuration in a process that is not a Chaton server: CHATON_CONFIG, else config/chaton.rb. ENV stays as
  # it is. In a Rails application the environment is Rails.env, and the directory Rails.root.
  #
  # @return [Config::Plan]
  # @raise [ConfigError]
  def self.read_configuration
    require_relative "config"
    Config.of_client({ **Jobs.setup.given.slice(:store), **Streams.setup.given.slice(:broker) })
  end
end
