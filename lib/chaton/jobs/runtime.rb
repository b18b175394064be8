# frozen_string_literal: true

require_relative "../jobs"
require_relative "gem_watch"
require_relative "job_files"

module Chaton
  module Jobs
    # Makes a process one that runs jobs: before the application is loaded, after it, and at the moments of a
    # worker's life.
    module Runtime
      class << self
        # Before the application is loaded, also where it is loaded once for all workers: jobs are enqueued with
        # this plan from here on, and a sidekiq gem that is loaded finds itself on a server where one of the
        # processes is to run jobs.
        #
        # @param plan [Config::Plan]
        # @return [void]
        def before_app(plan)
          @server = true if plan.role?(:jobs)
          Jobs.use(plan)
        end

        # Looks out for what the application loads; see {GemWatch}.
        #
        # @return [void]
        # @private
        def watch
          unwatch
          @watch = GemWatch.new(server: server?).start
        end

        # @return [void]
        # @private
        def unwatch
          @watch&.stop
          @watch = nil
        end

        # @return [Boolean] whether this process, or one that is forked from it, runs jobs
        def server? = @server || false

        # Loads what runs jobs: the Rails environment, and the files of `load`. Each is loaded once.
        #
        # @param plan [Config::Plan]
        # @param log [Telemetry::Log]
        # @return [void]
        # @raise [AppLoadError] naming the file
        def prepare(plan, log)
          @server = true
          Jobs.use(plan)
          SidekiqGem.be_server if SidekiqGem.loaded?
          JobFiles.new(plan, log).load
          unwatch
          warn_of_two_stores(plan, log) if SidekiqGem.loaded?
        end

        # @return [Boolean] whether a job whose time has come is to be handed to client middleware
        def claims_due? = Jobs.client.middleware?

        # What the engine needs of the jobs that the clock enqueues.
        #
        # @param plan [Config::Plan]
        # @return [Array<Array(String, String, String, String, String)>] name, expression, zone, queue and head
        def crons(plan)
          plan.jobs.crons.map do |line|
            queue, head = CronEntry.head(line.class_name, args: line.args, queue: line.queue)
            [line.name, line.expression, line.zone, queue, head]
          end
        end

        # A worker is about to take jobs.
        #
        # @return [void]
        def startup(log) = fire(:startup, log)

        # A worker takes no more jobs.
        #
        # @return [void]
        def quiet(log)
          return if Jobs.stopping?

          Jobs.stopping = true
          fire(:quiet, log, backwards: true)
        end

        # A worker stops.
        #
        # @return [void]
        def shutdown(log)
          quiet(log)
          fire(:shutdown, log, backwards: true)
        end

        private

        # The gem's classes push by themselves, and to Redis only.
        def warn_of_two_stores(plan, log)
          return if plan.jobs.store_settings[:url].to_s.start_with?("redis", "valkey", "unix")

          log.warn("the sidekiq gem is loaded: what its classes enqueue goes to its own Redis, and jobs are taken " \
                   "from another store; write jobs { store \"redis://…\" }, or take the gem out and require " \
                   "\"chaton/sidekiq\"")
        end

        def fire(event, log, backwards: false)
          blocks = Jobs.setup.blocks(event) + SidekiqGem.blocks(event)
          (backwards ? blocks.reverse : blocks).each do |block|
            block.call
          rescue Exception => e # rubocop:disable Lint/RescueException -- one block is not the worker
            log.exception(e, "a block for the event #{event} failed")
          end
        end
      end
    end
  end
end
