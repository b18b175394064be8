# frozen_string_literal: true

require_relative "../errors"
require_relative "../native"
require_relative "../streams"
require_relative "../telemetry/still_running"
require_relative "../web/app"
require_relative "jobs_database"

module Chaton
  class Workload
    # Loads the code that a process with some roles runs: the Rack application for web, job classes for jobs,
    # consumers for streams.
    module Code
      # @param forks [Boolean] whether workers are forked from this process, which writes no records itself
      # @return [#call, nil] the Rack application; nil without the role web
      # @raise [AppLoadError, ConfigError]
      def self.load(plan, roles, log:, forks: false)
        # A process of any role enqueues and produces by this plan.
        use(plan, forks) if plan.jobs
        produce(plan, forks) if plan.streams
        Live.use(plan)
        # Sidekiq's blocks for servers ask at load time whether they run in one.
        Jobs::Runtime.before_app(plan) if roles.include?(:jobs)
        app = Telemetry::StillRunning.watch(teller(log)) do
          next load_roles(plan, roles, log) unless plan.jobs

          Jobs::SidekiqGem.in_server(Jobs::Runtime.server?) { load_roles(plan, roles, log) }
        end
        # An application that does not require "chaton" gets what can still be added.
        require_relative "../rails" if defined?(::ActiveSupport) && ::ActiveSupport.respond_to?(:on_load)
        plan = tell(plan, settled(plan), log)
        JobsDatabase.check(plan)
        Jobs::GemPushes.install(plan, log) if plan.jobs
        # Loading went deeper than what follows, and some Rubies touch all of it when they start.
        Native::Memory.release_main_stack
        app
      end

      # The same for an application that is loaded already, as under `rackup`.
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

      # The admin endpoint belongs to the main process, which knows the configuration file only.
      def self.tell(before, plan, log)
        if plan.admin && plan.jobs && !plan.jobs.equal?(before.jobs)
          log.warn("the application names the store of jobs, and the admin endpoint shows the queues of the store " \
                   "that the configuration names: write the same address there", store: plan.jobs.store_shown)
        end
        plan
      end

      # @return [Config::Plan] with what the application, which is loaded by now, has set in Ruby
      def self.settled(plan)
        plan = Jobs.settled(plan) if plan.jobs
        plan.streams ? Streams.settled(plan) : plan
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
      rescue StreamRefused => e
        raise ConfigError, "streams: #{e.message}"
      end
      private_class_method :teller, :tell, :load_roles, :use, :produce
    end
  end
end
