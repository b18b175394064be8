# frozen_string_literal: true

module Chaton
  class CLI
    class Init < Command
      # Takes over a config/sidekiq.yml, as a server reads it.
      module SidekiqLines
        # Setting => its value in the settings of jobs.
        SETTINGS = {
          threads: ->(jobs) { jobs.threads && "#{jobs.threads.threads_min}..#{jobs.threads.threads_max}" },
          shutdown_timeout_s: ->(jobs) { jobs.shutdown_timeout_s },
          retries_max: ->(jobs) { jobs.retries_max unless jobs.retries_max == Config::Options[:retries_max].default },
          labels: ->(jobs) { words(jobs.labels) },
          load: ->(jobs) { words(jobs.load.map { |path| path.delete_prefix("#{Dir.pwd}/") }) }
        }.freeze

        # @param given [Hash{Symbol=>Object}] options of the command line
        # @return [Array<String>] of a config/chaton.rb
        def self.lines(given)
          path = Config::Options[:sidekiq_file].default
          return [] unless File.file?(path)

          plan = Config.load({ **given, config_file: Config::Loader::NO_FILE, jobs: true })
          jobs = plan.jobs
          settings = SETTINGS.filter_map { |name, value| value.call(jobs)&.then { |found| "  #{name} #{found}" } }
          ["# from #{path} (environment #{plan.environment})", *notes(plan), "jobs do", *store,
           "  queues #{queues(jobs)}", *settings, "  sidekiq_file \"none\"", "end"]
        end

        def self.words(list) = (list.map(&:inspect).join(", ") unless list.empty?)

        # The line of the store is written in any case.
        def self.notes(plan)
          plan.notes.grep(/sidekiq\.yml/).grep_v(/no jobs { store/).map { |note| "# not taken over: #{note}" }
        end

        def self.store
          variable = [ENV.fetch("REDIS_PROVIDER", ""), "REDIS_URL"].find { |name| !name.empty? }
          hint = "where Sidekiq's jobs are#{"; set #{variable} or change this line" if ENV[variable].to_s.empty?}"
          ["  store ENV.fetch(#{variable.inspect}, \"redis://127.0.0.1:6379/0\")   # #{hint}"]
        end

        def self.queues(jobs)
          names = jobs.queues.map { |name, _| name.inspect }
          case jobs.mode
          when "strict" then names.join(", ")
          when "random" then "random: [#{names.join(", ")}]"
          else jobs.queues.map { |name, weight| "#{name.inspect}: #{weight}" }.join(", ")
          end
        end
        private_class_method :words, :notes, :store, :queues
      end
    end
  end
end
