# frozen_string_literal: true

require_relative "errors"
require_relative "version"

# What all of Chaton needs. Requiring it is cheap: it starts nothing and loads neither the native extension nor Rack.
# The classes for jobs and consumers are loaded when they are first used. The command line is "chaton/cli", the
# configuration "chaton/config"; the workload loads the engines. An application requires "chaton": that adds Rails'
# part.
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
  autoload :Transaction, "chaton/transaction"

  extend Streams::Producing
  extend Live::Broadcasting

  # Holds back the jobs and records of the block, in a job or a consumer, and writes them in one transaction with the
  # acknowledgement of the job, or the commit of the batch: all of it or nothing, whatever dies meanwhile. Nothing is
  # written when the block raises, or the job or batch fails later. Jobs and records must be in one SQLite file:
  # `streams { broker "sqlite://storage/chaton.db" }` with the file of `jobs { store … }`.
  #
  # @example
  #   Chaton.transaction do
  #     Invoice.perform_async(order)
  #     Chaton.produce("orders", { order: order, state: "paid" })
  #   end
  # @return [Object] what the block returns
  # @raise [ConfigError] where jobs and records are not in one file
  # @raise [BufferFull] when the block holds too much
  def self.transaction(&block)
    raise ArgumentError, "Chaton.transaction needs a block: Chaton.transaction { … }" unless block

    Transaction.run(&block)
  end

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
