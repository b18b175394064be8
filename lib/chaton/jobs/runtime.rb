# frozen_string_literal: true

require_relative "../jobs"
require_relative "job_files"

module Chaton
  module Jobs
    # Prepares a process for jobs: before and after the application is loaded, and when a worker starts and stops.
    module Runtime
      # Seconds between two :beat events.
      BEAT_S = 10

      class << self
        # Called before the application is loaded, also when it is loaded once for all workers. From now on jobs are
        # enqueued with this plan, and `Sidekiq.server?` is true if one of the processes runs jobs.
        def before_app(plan)
          @server = true if plan.role?(:jobs)
          Jobs.use(plan)
        end

        # @return [Boolean] whether this process, or one that is forked from it, runs jobs
        def server? = @server || false

        # Loads the Rails environment and the files of `load`, each once.
        #
        # @raise [AppLoadError] naming the file
        def prepare(plan, log)
          @server = true
          Jobs.use(plan)
          JobFiles.new(plan, log).load
          SidekiqGem.forget
          SidekiqBoot.check(Jobs.settled(plan), log)
        end

        # @return [Boolean] whether due jobs go through client middleware
        def claims_due? = Jobs.client.middleware?

        # The cron jobs as the engine takes them.
        #
        # @return [Array<Array>] name, expression, zone, and what {CronEntry.template} returns
        def crons(plan)
          plan.jobs.crons.map do |line|
            template = CronEntry.template(line.class_name, args: line.args, queue: line.queue)
            [line.name, line.expression, line.zone, *template]
          end
        end

        # Runs the blocks for :startup, before a worker claims jobs.
        #
        # @raise [ConfigError] jobs with `options transaction: true` cannot run
        def startup(log)
          Transaction.check_jobs
          fire(:startup, log)
        end

        # Runs the blocks for :heartbeat and :beat on a thread, if there are any, from now on until {ended}.
        def start_beats(log)
          return if [:heartbeat, :beat].all? { |event| blocks(event).empty? }

          @beats = Thread.new do
            fire(:heartbeat, log)
            loop do
              fire(:beat, log)
              sleep BEAT_S
            end
          end
        end

        # Runs the blocks for :exit, when all jobs have ended.
        def ended(log)
          @beats&.kill
          fire(:exit, log, backwards: true)
        end

        # Runs the blocks for :quiet, once, when a worker claims no more jobs.
        def quiet(log)
          return if Jobs.stopping?

          Jobs.stopping = true
          fire(:quiet, log, backwards: true)
        end

        # Runs the blocks for :shutdown when a worker stops.
        def shutdown(log)
          quiet(log)
          fire(:shutdown, log, backwards: true)
        end

        private

        def blocks(event) = Jobs.setup.blocks(event) + SidekiqGem.blocks(event)

        def fire(event, log, backwards: false)
          (backwards ? blocks(event).reverse : blocks(event)).each do |block|
            block.call
          rescue Exception => e # rubocop:disable Lint/RescueException -- a broken block must not stop the worker
            log.exception(e, "a block for the event #{event} failed")
          end
        end
      end
    end
  end
end
