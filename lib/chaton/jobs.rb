# frozen_string_literal: true

require_relative "native_library"
require_relative "process_client"

module Chaton
  # The Ruby half of background jobs: enqueues from any process, and runs the jobs that the engine claims.
  #
  # A process has one configuration, and so one store and one set of middleware. This module holds both, because
  # `SomeJob.perform_async` gets no argument that could.
  module Jobs
    # File => the constants that it defines.
    {
      arguments: :Arguments, batch_pushes: :BatchPushes, chain: :Chain, job_class: :JobClass,
      argument_filter: :ArgumentFilter, client: :Client, clock: :Clock, cron_entry: %i[CronEntry CronStatus],
      declaration: :Declaration, error_report: :ErrorReport, failures: :Failures, gem_pushes: :GemPushes,
      handler: :Handler, inline: :Inline, job_list: :JobList, job_set: %i[JobSet DeadSet RetrySet ScheduledSet],
      limits: :Limits, options: :Options, own_work: :OwnWork, postgres_tables: :PostgresTables,
      process_set: :ProcessSet, queue: :Queue, job_record: :JobRecord, runtime: :Runtime, setter: :Setter,
      setup: :Setup, shutdown: :Shutdown, sidekiq_boot: :SidekiqBoot, sidekiq_gem: :SidekiqGem, stats: :Stats
    }.each { |file, names| [*names].each { |name| autoload name, "chaton/jobs/#{file}" } }
    autoload :Testing, "chaton/testing"

    extend ProcessClient

    # What a configuration without jobs lacks.
    EXAMPLE = "jobs { }"
    private_constant :EXAMPLE

    @setup = Setup.new
    @stopping = false

    class << self
      # @return [Setup] middleware and handlers of this process
      attr_reader :setup

      # Sets the store, middleware, handlers and blocks for events.
      #
      # @example
      #   Chaton::Jobs.configure do |config|
      #     config.store Rails.application.credentials.redis_url
      #     config.server_middleware { |chain| chain.add Timing }
      #     config.death_handlers << ->(job, error) { Pager.call(job["jid"], error) }
      #   end
      # @yieldparam config [Setup]
      # @return [Setup]
      def configure
        yield setup if block_given?
        setup
      end

      # The entries of `cron` in the configuration, with their last and next ticks.
      #
      # @example
      #   Chaton::Jobs.cron.each { |entry| puts "#{entry.name}: last #{entry.last_at}, next #{entry.next_at}" }
      # @return [Array<CronStatus>] in the order of the configuration
      # @raise [ConfigError] when no jobs are configured
      # @raise [StoreError]
      def cron
        CronEntry.all(settings, client.native)
      end

      # @param plan [Config::Plan]
      # @return [Config::Plan] with the store that the application has set in Ruby
      # @private
      def settled(plan)
        given = setup.given
        return plan if given.empty? || plan.jobs.nil?

        plan.with(jobs: plan.jobs.with_store(given, plan.root, plan.environment))
      end

      # Reads the configuration, unless this process has one. Mistakes are for the first call that enqueues.
      #
      # @private
      def read_settings
        @lock.synchronize { configured(:jobs, EXAMPLE) }
      rescue ConfigError
        nil
      end

      # Asks a job to end, in whatever process it runs, or before it starts. It ends when it checks {Job#cancelled?}.
      #
      # @param jid [String] what `perform_async` returned, or ActiveJob's `provider_job_id`
      # @raise [StoreError]
      def cancel(jid)
        client.native.cancel(jid)
        nil
      end

      # Sets the plan, for a process that has read its configuration.
      #
      # @param plan [Config::Plan]
      # @param forks [Boolean] whether this process forks workers: its client starts no thread that listens for a new
      #   primary; nil: as before
      # @private
      def use(plan, forks: nil)
        @lock.synchronize do
          @plan = plan
          @client = nil
          @forking_pid = (::Process.pid if forks) unless forks.nil?
        end
      end

      # @return [Config::JobsSettings]
      # @raise [ConfigError] when no jobs are configured
      # @private
      def settings = configured(:jobs, EXAMPLE)

      # @return [Integer] generation of the format of documents that are made without a store
      # @private
      def format = @plan&.jobs&.format || Clock::FORMAT

      # Sends the jobs that are kept in memory (`reliable_push`), at the end of a worker.
      #
      # @param log [Telemetry::Log]
      # @param time_s [Float] for how long, where `reliable_push_timeout_s` is shorter
      # @private
      def finish(log:, time_s: 0.0)
        @client.finish(log: log, time_s: time_s) if @client.respond_to?(:finish)
      end

      # @private
      attr_writer :stopping

      # @return [String, nil] the name under which this process claims jobs
      # @private
      attr_accessor :owner

      # @return [Boolean] whether this worker claims no more jobs; long ones should end soon
      def stopping? = @stopping

      private

      def make_client
        store = settings.store_settings
        return run_at_once if @plan.development? && !NativeLibrary.new.system?

        Client.for(store, forks: @forking_pid == ::Process.pid)
      end

      # For development on a system that has no store and no worker.
      def run_at_once
        logger.warn("Chaton runs jobs on Linux only: here, in development, each job runs at once in the process that " \
                    "enqueues it, also one for later (as with Chaton::Testing.inline!)")
        require_relative "testing"
        Testing.inline!
        Testing.client
      end
    end
  end
end
