# frozen_string_literal: true

require_relative "../errors"
require_relative "sidekiq_gem"

module Chaton
  module Jobs
    # What an application has set in `Sidekiq.configure_server` is known once it is loaded: its queues, its
    # concurrency, and gems that hook into Sidekiq's own processes.
    module SidekiqBoot
      # Constants of gems whose schedules do not fire here => their names, and what holds instead.
      SCHEDULERS = {
        "Sidekiq::Cron" => ["sidekiq-cron", "its schedules do not fire here"],
        "SidekiqScheduler" => ["sidekiq-scheduler", "the schedule in config/sidekiq.yml is not read here, and only " \
                                                    "that which the application sets itself fires"],
        "Sidekiq::Periodic" => ["Sidekiq Enterprise", "its periodic jobs do not fire here"]
      }.freeze

      class << self
        # @param plan [Config::Plan] of a process that has loaded its application
        # @raise [ConfigError] for queues that cannot be run as the application wants
        def check(plan, log)
          warn_of_schedulers(log)
          check_queues(plan, log)
        end

        # @param roles [Array<Symbol>] of the process
        # @return [Config::Plan] with the queues and the concurrency that the application has set in Ruby, where
        #   nothing else sets them
        def apply(plan, roles)
          queues = SidekiqGem.queues
          queues = nil unless plan.jobs.queues_default?
          plan = plan.with(jobs: plan.jobs.with_queues(queues)) if queues
          threads = SidekiqGem.concurrency
          return plan if threads.nil? || roles != [:jobs] || plan.jobs.threads || plan.threads_max_given?

          plan.with(threads_min: [plan.threads_min, threads].min, threads_max: threads, threads_max_given: true)
        end

        private

        def check_queues(plan, log)
          queues = SidekiqGem.queues
          capsules = SidekiqGem.capsules
          return unless queues || capsules.any?

          if plan.jobs.queues_default?
            refuse(capsules.first) unless capsules.empty?
            return queues && plan.jobs.with_queues(queues)
          end

          warn_of_other_queues(plan, [*queues&.keys, *capsules.flat_map(&:last)], log)
          capsules.each do |name, names|
            log.warn("a capsule of Sidekiq has no threads of its own here", capsule: name, queues: names.join(","))
          end
        end

        def warn_of_schedulers(log)
          SCHEDULERS.each do |constant, (name, what)|
            next unless Object.const_defined?(constant)

            log.warn("#{name} is loaded: #{what}; write them as jobs { cron \"name\", \"0 3 * * *\", \"SomeJob\" }, " \
                     "or leave one sidekiq process running for them")
          end
        end

        def refuse(capsule)
          name, queues = capsule
          raise ConfigError, "Sidekiq's capsule #{name.inspect} gives #{queues.join(", ")} threads of their own, " \
                             "which queues do not have here: name all queues that this server is to run in " \
                             "jobs { queues … }, and limit job classes, as by limit: { concurrency: 1 }"
        end

        def warn_of_other_queues(plan, wanted, log)
          missing = wanted.uniq - plan.jobs.queues.map(&:first)
          return if missing.empty?

          log.warn("queues of Sidekiq.configure_server are not run, because the configuration names others",
                   queues: missing.join(","))
        end
      end
    end
  end
end
