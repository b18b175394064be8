# frozen_string_literal: true

require_relative "../support/postgres"
require_relative "job_server"

module Bench
  # A peer that keeps the jobs of Active Job in PostgreSQL, and of which Debian has no package: a variable of the
  # environment names the folder of its source and, behind colons, those of gems that it needs. Its process is the
  # application of bench/jobs/apps/active_jobs.rb. Subclasses define SOURCE, `adapter` and `run`.
  class TableQueue < JobServer
    APP = File.join(ROOT, "bench/jobs/apps/active_jobs.rb")
    TABLE_CLIENT = File.join(ROOT, "bench/jobs/table_client.rb")
    # So many are enough for a rate of a few hundred in a second.
    JOBS = 2000
    WARM_UP = 500

    # @return [Array<self>]
    def self.installed(threads) = self::SOURCE ? [new(threads:)] : []

    def initialize(threads:)
      super()
      @threads = threads
      @databases = Hash.new { |all, folder| all[folder] = Postgres.database }
    end

    def label = "#{adapter} -t #{@threads}"
    def jobs = JOBS
    # @return [Integer] jobs before the measured ones. All of them are waiting when it starts.
    def warm_up = WARM_UP
    def client(folder, url) = [ENVIRONMENT.merge(environment(folder, url)), "ruby", TABLE_CLIENT, APP]

    private

    def command(_folder, _url) = ["ruby", "-r", APP, "-e", run]

    # @return [Hash{String => String}] that of the application
    def environment(folder, _url)
      { "BENCH_ADAPTER" => adapter, "BENCH_SOURCE" => self.class::SOURCE,
        "DATABASE_URL" => Postgres.rails_url(@databases[folder], pool: @threads + 5) }
    end
  end
end
