# frozen_string_literal: true

require_relative "errors"

module Chaton
  # The Ruby half of background jobs: enqueueing from any process, and running what the engine hands over.
  #
  # A process has one store and one set of middleware, as it has one configuration; this module holds both,
  # because `SomeJob.perform_async` has nobody to be handed them by.
  module Jobs
    autoload :AfterCommit, "chaton/jobs/after_commit"
    autoload :Arguments, "chaton/jobs/arguments"
    autoload :Chain, "chaton/jobs/chain"
    autoload :ClassEntry, "chaton/jobs/class_entry"
    autoload :Client, "chaton/jobs/client"
    autoload :Clock, "chaton/jobs/clock"
    autoload :CronEntry, "chaton/jobs/cron_entry"
    autoload :DeadSet, "chaton/jobs/job_set"
    autoload :Declaration, "chaton/jobs/declaration"
    autoload :ErrorReport, "chaton/jobs/error_report"
    autoload :Failures, "chaton/jobs/failures"
    autoload :Handler, "chaton/jobs/handler"
    autoload :Inline, "chaton/jobs/inline"
    autoload :JobList, "chaton/jobs/job_list"
    autoload :JobSet, "chaton/jobs/job_set"
    autoload :Limits, "chaton/jobs/limits"
    autoload :Options, "chaton/jobs/options"
    autoload :ProcessSet, "chaton/jobs/process_set"
    autoload :Queue, "chaton/jobs/queue"
    autoload :Record, "chaton/jobs/record"
    autoload :RetrySet, "chaton/jobs/job_set"
    autoload :Runtime, "chaton/jobs/runtime"
    autoload :ScheduledSet, "chaton/jobs/job_set"
    autoload :Setter, "chaton/jobs/setter"
    autoload :Setup, "chaton/jobs/setup"
    autoload :Shutdown, "chaton/jobs/shutdown"
    autoload :SidekiqGem, "chaton/jobs/sidekiq_gem"
    autoload :Stats, "chaton/jobs/stats"
    autoload :Testing, "chaton/testing"

    @lock = Mutex.new
    @setup = Setup.new
    @stopping = false

    class << self
      # @return [Setup] middleware and handlers of this process
      attr_reader :setup

      # What an application sets up: middleware, handlers, events.
      #
      # @example
      #   Chaton::Jobs.configure do |config|
      #     config.server_middleware { |chain| chain.add Timing }
      #     config.death_handlers << ->(job, error) { Pager.call(job["jid"], error) }
      #   end
      # @yieldparam config [Setup]
      # @return [Setup]
      def configure
        yield setup if block_given?
        setup
      end

      # The client that `perform_async` pushes with. Made on first use: in a worker from the plan it runs
      # with, in any other process from CHATON_CONFIG or config/chaton.rb.
      #
      # @return [Client]
      # @raise [ConfigError] when no jobs are configured
      def client
        @client || @lock.synchronize { @client ||= Client.for(settings) }
      end

      # Puts another client in the place of the one there is.
      #
      # @param client [Client, nil] nil: a new one is made on the next use
      # @return [Client, nil] the former one
      def swap_client(client)
        @lock.synchronize do
          former = @client
          @client = client
          former
        end
      end

      # Makes a plan the one of this process: for a process that has loaded its configuration already.
      #
      # @param plan [Config::Plan]
      # @return [void]
      def use(plan)
        @lock.synchronize do
          @plan = plan
          @client = nil
        end
        Runtime.watch
      end

      # @return [#info, #warn, #error] what `logger` is in a job
      def logger
        @logger ||= default_logger
      end

      attr_writer :logger, :stopping

      # @return [Boolean] whether this worker takes no more jobs: long ones should find an end
      def stopping? = @stopping

      private

      def settings
        @plan ||= Chaton.read_configuration
        jobs = @plan.jobs
        return jobs.store_settings if jobs

        raise ConfigError, "no jobs are configured: write `jobs { store \"sqlite://storage/jobs.db\" }` into " \
                           "#{@plan.config_file || "config/chaton.rb"} (or name the file in CHATON_CONFIG)"
      end

      def default_logger
        rails = ::Rails.logger if defined?(::Rails) && ::Rails.respond_to?(:logger)
        return rails if rails

        require "logger"
        ::Logger.new($stdout, progname: "chaton")
      end
    end
  end
end
