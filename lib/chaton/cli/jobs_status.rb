# frozen_string_literal: true

require "json"
require_relative "../config"

module Chaton
  class CLI
    # Adds figures of the job store to `chaton status`. They are read from the store, because the main process has no
    # connection to it.
    module JobsStatus
      # @param status [Hash{String=>Object}] a server's answer
      # @param given [Hash{Symbol=>Object}] of the command line
      # @return [Hash{String=>Object}] the answer, with "jobs" where the server runs some
      def self.add(status, given)
        return status unless runs_jobs?(status)

        given = { environment: status["environment"], **given }.compact
        # The server may run jobs only because of its command line.
        jobs = Config.load(given).jobs || Config.load({ **given, jobs: true }).jobs
        { **status, "jobs" => of(settings(jobs, status["store"])) }
      rescue Config::Invalid => e
        { **status, "jobs" => { "store" => status["store"], "error" => e.message } }
      end

      def self.runs_jobs?(status)
        roles = [*status["workers"], status["workload"]].compact.flat_map { |one| Array(one["roles"]) }
        roles.include?("jobs")
      end

      # The server may have been started with another address. It does not tell a password.
      def self.settings(jobs, shown)
        shown.nil? || shown.include?("***") ? jobs.store_settings : { **jobs.store_settings, url: shown }
      end

      def self.of(settings)
        require_relative "../native"
        client = Native::JobsClient.new(JSON.generate(settings))
        { "store" => client.address, "stats" => client.stats.transform_keys(&:to_s),
          "queues" => client.queues.map { |queue| queue.transform_keys(&:to_s) },
          "outbox" => client.outbox&.transform_keys(&:to_s) }.compact
      rescue Chaton::Error, ArgumentError => e
        { "store" => Config::StoreAddress.shown(settings[:url]), "error" => e.message }
      end
      private_class_method :runs_jobs?, :settings, :of
    end
  end
end
