# frozen_string_literal: true

require_relative "../../test/support/postgres_server"

module Bench
  # The PostgreSQL of a run, with a database for each slice. As users run it: a commit waits for the disk.
  module Postgres
    # One pid for a line of the log, and no parameters in it.
    LOG = { "log_line_prefix" => "%p ", "log_parameter_max_length" => 0 }.freeze
    STEP = /\A(\d+) LOG:  duration: ([\d.]+) ms  (?:(parse|bind|execute) \S+|statement): (.{0,11})/
    # With what a claim begins that acknowledges, and one that does not.
    CLAIM = /\AWITH (?:gone|picked)/

    module_function

    # @return [PostgresServer]
    def server
      @server ||= PostgresServer.new(LOG).start.tap { |server| at_exit { server.close } }
    end

    # @param logs [Boolean] whether the server logs each statement with its time
    # @return [String] the name of a new database
    def database(logs: false)
      server.create_database.tap do |name|
        server.query("ALTER DATABASE #{name} SET log_min_duration_statement=0") if logs
      end
    end

    # @return [String] what Rails takes for DATABASE_URL: it needs a name of a host before a user
    def rails_url(name, pool: 5) = "postgres:///#{name}?host=#{server.dir}&user=#{PostgresServer::USER}&pool=#{pool}"

    # Where a new line of the log begins.
    def log_size = File.size(log)

    # The times of claims, in the server: plan, execution and commit.
    #
    # @param from [Integer] in the log
    # @return [Array<Float>] ms, in their order
    def claims_ms(from)
      open = Hash.new(0.0)
      File.open(log) do |file|
        file.seek(from)
        file.each_line.filter_map do |line|
          pid, took_ms, part, begins = line.match(STEP)&.captures
          next open[pid] += took_ms.to_f if part && begins.match?(CLAIM) && part != "parse"
          next open[pid] = took_ms.to_f if part && begins.match?(CLAIM)
          took_ms.to_f + open.delete(pid) if begins == "COMMIT" && open.key?(pid)
        end
      end
    end

    def log = File.join(server.dir, "log")
  end
end
