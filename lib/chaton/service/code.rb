# frozen_string_literal: true

require_relative "../errors"
require_relative "../native"
require_relative "../rails/watch"
require_relative "../streams"
require_relative "../telemetry/still_running"
require_relative "../web/app"
require_relative "jobs_database"

module Chaton
  class Service
    # Loads the code that a process with some roles runs: the Rack application for web, job classes for jobs,
    # consumers for streams.
    module Code
      # @param plan [Config::Plan]
      # @param roles [Array<Symbol>]
      # @param log [Telemetry::Log]
      # @param forks [Boolean] whether workers are forked from this process, which writes no records
      # @return [#call, nil] the Rack application; nil without the role web
      # @raise [AppLoadError, ConfigError]
      def self.load(plan, roles, log:, forks: false)
        # A process of any role enqueues and produces by this plan.
        use(plan, forks) if plan.jobs
        produce(plan, forks) if plan.streams
        # Sidekiq's blocks for servers ask at load time whether they run in one.
        Jobs::Runtime.before_app(plan) if roles.include?(:jobs)
        app = Telemetry::StillRunning.watch(teller(log)) { watch(plan) { load_roles(plan, roles, log) } }
        JobsDatabase.check(plan)
        Jobs::GemPushes.install(plan, log) if plan.jobs
        # Loading went deeper than what follows, and some Rubies touch all of it when they start.
        Native::Memory.release_main_stack
        app
      end

      # The same for an application that is loaded already, as under `rackup`.
      #
      # @param plan [Config::Plan]
      # @param roles [Array<Symbol>]
      # @param log [Telemetry::Log]
      def self.follow(plan, roles, log:)
        load(plan, roles - [:web], log: log)
      end

      # A large application loads for long.
      def self.teller(log)
        before = $LOADED_FEATURES.size
        lambda do |seconds|
          log.info("still loading the application", files: $LOADED_FEATURES.size - before, seconds: seconds)
        end
      end

      # For ActiveJob and Sidekiq, where jobs are enqueued or run.
      def self.watch(plan, &)
        return RailsWatch.during(&) unless plan.jobs

        RailsWatch.during { Jobs::GemWatch.during(server: Jobs::Runtime.server?, &) }
      end

      def self.load_roles(plan, roles, log)
        app = Web::App.load(plan) if roles.include?(:web)
        Jobs::Runtime.prepare(plan, log) if roles.include?(:jobs)
        Streams::Runtime.prepare(plan, log) if roles.include?(:streams)
        app
      end

      def self.use(plan, forks)
        require "chaton/jobs"
        Jobs.use(plan, forks: forks)
      end

      # Reports a property that librdkafka does not know once, here, rather than in each worker.
      def self.produce(plan, forks)
        Streams.use(plan, forks: forks)
        plan.streams.log_documents.each { |settings| Native.check_log(settings) }
      rescue LogRefused => e
        raise ConfigError, "streams: #{e.message}"
      end
      private_class_method :teller, :watch, :load_roles, :use, :produce
    end
  end
end
