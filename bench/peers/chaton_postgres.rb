# frozen_string_literal: true

require_relative "../../test/support/postgres_server"
require_relative "chaton_jobs"

module Bench
  # Chaton with its jobs in PostgreSQL, on one server for all slices, each with a database of its own. As users run it:
  # a commit waits for the disk.
  class ChatonPostgres < ChatonJobs
    # @return [String] the address of a new one
    def self.database
      @server ||= PostgresServer.new.start.tap { |server| at_exit { server.close } }
      @server.url(@server.create_database)
    end

    def initialize(...)
      super
      @databases = Hash.new { |all, folder| all[folder] = self.class.database }
    end

    def label = super.sub("chaton", "chaton postgres")
    def on_disk? = true

    private

    def store(folder, _url) = folder == "FOLDER" ? "postgres://postgres@/DATABASE?host=FOLDER" : @databases[folder]
  end
end
