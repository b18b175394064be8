# frozen_string_literal: true

require_relative "chaton/errors"
require_relative "chaton/version"

# Requiring "chaton" is light on purpose: it starts nothing and loads neither the native extension nor Rack. What an
# application writes its jobs with is loaded when it is first named. The command line is "chaton/cli",
# configurations are "chaton/config"; an engine is loaded by what runs it.
module Chaton
  autoload :Batch, "chaton/batch"
  autoload :Consumer, "chaton/consumer"
  autoload :IterableJob, "chaton/iterable_job"
  autoload :Job, "chaton/job"
  autoload :Jobs, "chaton/jobs"
  autoload :Streams, "chaton/streams"
  autoload :Testing, "chaton/testing"

  extend Streams::Producing

  # Reads the configuration of a process that Chaton does not serve: CHATON_CONFIG, else config/chaton.rb.
  #
  # @return [Config::Plan]
  # @raise [ConfigError]
  def self.read_configuration
    require "chaton/config"
    Config.load
  end
end

# Where Rails is there already, `queue_adapter = :chaton` finds its adapter.
require_relative "chaton/rails" if defined?(ActiveSupport) && ActiveSupport.respond_to?(:on_load)
