# frozen_string_literal: true

require_relative "chaton_postgres"
require_relative "table_queue"

module Bench
  # Chaton with the application of the {TableQueue}s, whose jobs are those of Active Job.
  class ChatonActiveJob < ChatonPostgres
    def label = super.sub("postgres", "postgres active_job")

    def configuration(folder, url) = super.sub(JOBS, TableQueue::APP).sub(%(require "chaton/sidekiq"\n), "")

    def client(folder, url)
      [ENVIRONMENT.merge(environment(folder, url)), "ruby", *library_path, TableQueue::TABLE_CLIENT, TableQueue::APP]
    end

    private

    def environment(folder, url)
      super.merge("BENCH_ADAPTER" => "chaton", "DATABASE_URL" => Postgres.rails_url(@databases[folder]))
    end
  end
end
