# frozen_string_literal: true

require "securerandom"
require_relative "../errors"
require_relative "sidekiq_gem"

module Chaton
  module Jobs
    # What an application has set in `Sidekiq.configure_server` is known once it is loaded: its queues, its
    # concurrency, its Redis, and gems that hook into Sidekiq's own processes.
    module SidekiqBoot
      # Constants of gems whose schedules do not fire here => their names, and what holds instead.
      SCHEDULERS = {
        "Sidekiq::Cron" => ["sidekiq-cron", "its schedules do not fire here"],
        "SidekiqScheduler" => ["sidekiq-scheduler", "the schedule in config/sidekiq.yml is not read here, and only " \
                                                    "that which the application sets itself fires"],
        "Sidekiq::Periodic" => ["Sidekiq Enterprise", "its periodic jobs do not fire here"]
      }.freeze
      # Seconds after which a written mark of {.compare_stores} is gone.
      MARK_TTL_S = 60.0

      class << self
        # @param plan [Config::Plan] of a process that has loaded its application
        # @raise [ConfigError] for queues that cannot be run as the application wants, and when the gem's classes
        #   enqueue to another Redis than jobs are claimed from
        def check(plan, log)
          warn_of_schedulers(log)
          check_queues(plan, log)
          return unless SidekiqGem.loaded?

          redis?(plan) ? compare_stores(plan, log) : check_two_stores(plan, log)
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

        def redis?(plan) = plan.jobs.store_settings[:url].to_s.start_with?("redis", "valkey", "unix")

        # The gem's classes push to Redis only. Its Redis does not become the store by itself: `chaton jobs`, clients
        # and the supervisor need the store without having loaded the application, and would use another one.
        def check_two_stores(plan, log)
          address = SidekiqGem.redis_address unless plan.jobs.store_given
          refuse_default_store(plan, address) if address
          log.warn("the sidekiq gem is loaded: its classes enqueue to its own Redis, and jobs are claimed " \
                   "from another store; write jobs { store \"redis://…\" }, or take the gem out and require " \
                   "\"chaton/sidekiq\"")
        end

        # A mark that is written through one client has to be seen by the other. That compares server, database and
        # namespace at once, whatever names and proxies lead to them.
        def compare_stores(plan, log)
          native = Client.for(plan.jobs.store_settings, forks: true).native
          key = "chaton:mark:#{SecureRandom.hex(Client::JID_BYTES)}"
          native.save(key, { "at" => Clock.now_s.to_s }, MARK_TTL_S)
          seen = SidekiqGem.read(key, "at")
          native.remove_hash(key)
          refuse_other_store(plan) unless seen
        rescue ConfigError
          raise
        rescue StandardError => e
          log.warn("it is unknown whether the sidekiq gem uses the same Redis as Chaton", error: e.class.name,
                                                                                          reason: e.message)
        ensure
          native&.close
        end

        def refuse_default_store(plan, address)
          raise ConfigError, "jobs are claimed from #{plan.jobs.store_shown}, the default, but the sidekiq gem " \
                             "enqueues to #{address}, where they would not be run: #{line_of(address)}; or name the " \
                             "store there if only jobs of Chaton::Job are to be run"
        end

        def refuse_other_store(plan)
          address = SidekiqGem.redis_address
          advice = address && address != plan.jobs.store_shown ? "#{line_of(address)}, or " : ""
          raise ConfigError, "jobs are claimed from #{plan.jobs.store_shown}, but the sidekiq gem enqueues to " \
                             "another Redis, database or namespace#{" (#{address})" if address}, where they would " \
                             "not be run: #{advice}give Sidekiq.redis and jobs { store … } the same address"
        end

        def line_of(address)
          "write jobs { store \"#{address}\" } into config/chaton.rb, with user and password if there are any"
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
