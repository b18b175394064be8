# frozen_string_literal: true

require "open3"
require_relative "../support/postgres"

module Bench
  # PostgreSQL's own client on libpq, one connection: each time one INSERT with what Chaton's client stores for one job,
  # into Chaton's table, which commits by itself.
  class Pgbench
    LABEL = "pgbench -c 1"
    ROW = "SELECT format('INSERT INTO chaton.jobs(place, queue, payload, priority) VALUES (%s, %L, %L, %s)', place, " \
          "queue, payload, priority) FROM chaton.jobs LIMIT 1"

    def label = LABEL
    def chaton? = false
    def command_line = "#{LABEL} -n -t JOBS -f FILE"

    # @param folder [String]
    # @param database [String] with one job
    # @return [Float] rows a second
    def rate(folder, database, count)
      script = File.join(folder, "insert.sql")
      File.write(script, "#{Postgres.server.query(ROW, database:)};\n")
      program = File.join(PostgresServer::PROGRAMS, "pgbench")
      output, status = Open3.capture2e(program, *LABEL.split.drop(1), "-n", "-t", count.to_s, "-f", script,
                                       "-h", Postgres.server.dir, "-U", PostgresServer::USER, database)
      found = output[/^tps = ([\d.]+)/, 1]
      raise "pgbench failed: #{output}" unless status.success? && found
      Float(found)
    end
  end
end
