# frozen_string_literal: true

require_relative "../support/postgres"
require_relative "chaton_jobs"

module Bench
  # Chaton with its jobs in PostgreSQL.
  class ChatonPostgres < ChatonJobs
    # @return [Integer, nil] jobs in a drain, if they are not those of the case
    attr_reader :jobs

    # @param jobs [Integer, nil]
    # @param logs [Boolean] whether the times of claims are measured
    # @param database [String, nil] the name of the only one; nil: each slice has its own
    def initialize(jobs: nil, logs: false, database: nil, **rest)
      super(**rest)
      @jobs = jobs
      @databases = Hash.new { |all, folder| all[folder] = database || Postgres.database(logs:) }
      @logs = logs
    end

    def label = super.sub("chaton", "chaton postgres") + (@logs ? " #{Bench.grouped(jobs)} waiting" : "")
    def on_disk? = true

    # Measures the claims, too: those of the first half, in which the queue is long.
    def observed
      from = Postgres.log_size
      ended = yield
      return ended unless @logs
      claims = Postgres.claims_ms(from).then { |all| all.first(all.size / 2) }.sort
      { **ended, claims: claims.size, claim_p50_ms: Bench.percentile(claims, 0.5),
                 claim_p99_ms: Bench.percentile(claims, 0.99) }
    end

    private

    def store(folder, _url)
      folder == "FOLDER" ? "postgres://postgres@/DATABASE?host=FOLDER" : Postgres.server.url(@databases[folder])
    end
  end
end
