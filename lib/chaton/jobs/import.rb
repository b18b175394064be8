# frozen_string_literal: true

require "json"
require_relative "job_hash"
require_relative "../jobs"

module Chaton
  module Jobs
    # Takes over the jobs of ActiveJob that wait in the tables of Solid Queue or GoodJob. A step locks some rows in the
    # way of their own workers, stores the jobs and removes the rows in one transaction. Where those tables are in the
    # database of the store it is the same transaction, and their workers may go on. Elsewhere they have to be stopped,
    # and a step that is killed may enqueue its jobs twice.
    class Import
      # Rows of one transaction: their locks are held for some hundredths of a second.
      STEP = 200
      # A process of the old program with a heartbeat as young as this is alive: five of the beats of both.
      ALIVE_S = 300
      # What a row has for a job, beside its id.
      Row = Struct.new(:id, :job, :data, :at, :error)

      # The tables of one program: `kinds` has a query for each kind of row. `%<last>s` is the id of the last one seen.
      Source = Struct.new(:jobs, :processes, :beat, :from, :kinds, :pauses, :recurring, keyword_init: true)

      # From Solid Queue's schema: a job has one execution, which says where it is.
      def self.solid_queue
        kinds = %w[ready scheduled blocked failed].to_h do |kind|
          at = kind == "scheduled" ? "e.scheduled_at" : "NULL"
          error = kind == "failed" ? "e.error" : "NULL"
          [kind, "SELECT e.id, j.id, j.arguments, #{at}, #{error} FROM solid_queue_#{kind}_executions e " \
                 "JOIN solid_queue_jobs j ON j.id=e.job_id WHERE e.id>%<last>s ORDER BY e.id LIMIT #{STEP} %<lock>s"]
        end
        Source.new(jobs: "solid_queue_jobs", processes: "solid_queue_processes", beat: "last_heartbeat_at", from: "0",
                   kinds: kinds, pauses: "SELECT queue_name FROM solid_queue_pauses",
                   recurring: "SELECT key, schedule, class_name, arguments FROM solid_queue_recurring_tasks " \
                              "WHERE NOT static ORDER BY key")
      end

      # From GoodJob's schema: one table, and an advisory lock of the job that runs, named by the number of the row or,
      # up to version 3, of the job.
      def self.good_job
        free = %w[id active_job_id].map do |name|
          "pg_try_advisory_xact_lock(('x' || substr(md5('good_jobs-' || #{name}::text), 1, 16))::bit(64)::bigint)"
        end
        waits = { "waiting" => "finished_at IS NULL", "failed" => "finished_at IS NOT NULL AND error IS NOT NULL" }
        kinds = waits.transform_values do |condition|
          "WITH c AS MATERIALIZED (SELECT * FROM good_jobs WHERE #{condition} AND batch_id IS NULL AND " \
            "batch_callback_id IS NULL AND retried_good_job_id IS NULL AND id>%<last>s ORDER BY id LIMIT #{STEP} " \
            "FOR UPDATE SKIP LOCKED) SELECT id, id, serialized_params::text, scheduled_at, error FROM c " \
            "WHERE #{free.join(" AND ")}"
        end
        Source.new(jobs: "good_jobs", processes: "good_job_processes", beat: "updated_at",
                   from: "'00000000-0000-0000-0000-000000000000'", kinds: kinds)
      end

      # @return [Hash{String=>Integer}] by kind how many jobs were taken over
      attr_reader :taken
      # @return [Hash{String=>Integer}] by reason how many rows are left
      attr_reader :left

      # @param from [Symbol] :solid_queue or :good_job
      # @param database [String, nil] of config/database.yml; nil: the one that has the tables
      # @raise [ConfigError] there are no such tables, or the old program runs and must not
      def initialize(from, database: nil, client: Jobs.client)
        require "active_job/queue_adapters/chaton_adapter"
        @from = from
        @source = self.class.public_send(from)
        @client = client
        @adapter = ::ActiveJob::QueueAdapters::ChatonAdapter.new
        @connection = connection(database)
        @own = @connection if client.own?(@connection)
        @taken = Hash.new(0)
        @left = Hash.new(0)
        check_stopped unless @own
      end

      # @return [Integer] how many jobs wait
      def size = @connection.select_value("SELECT count(*) FROM #{@source.jobs} WHERE finished_at IS NULL").to_i

      # Takes over what waits, until nothing is left but rows that it cannot take.
      #
      # @yield [taken] after each step
      def run(&block)
        loop do
          before = @taken.values.sum
          @left.clear
          @source.kinds.each { |kind, sql| pass(kind, sql, &block) }
          break if @taken.values.sum == before
        end
      end

      # @return [Array<String>] queues that were paused, and are now here
      def pause
        names = @source.pauses ? @connection.select_values(@source.pauses) : []
        names.each { |name| @client.native.pause(name, true) }
      end

      # @return [Array<String>] lines of `jobs { }` for recurring jobs that were made while the program ran
      def recurring
        rows = @source.recurring ? @connection.select_rows(@source.recurring) : []
        rows.map do |key, schedule, name, arguments|
          given = JSON.parse(arguments || "[]")
          "cron #{key.dump}, #{schedule.dump}, #{name.to_s.dump}#{", args: #{given.inspect}" if given.any?}"
        end
      end

      private

      def connection(database)
        unless defined?(::ActiveRecord::Base)
          raise ConfigError, "chaton jobs import reads the tables by ActiveRecord, and the application loads none: " \
                             "run it in the application's directory, or load it by jobs { load … }"
        end
        return named(database) if database

        known = ->(pool) { pool.with_connection { |one| one.data_source_exists?(@source.jobs) } }
        pool = AfterCommit.pools.find(&known)
        return leased(pool) if pool

        raise ConfigError, "no table #{@source.jobs} in the databases that ActiveRecord has open: name its entry of " \
                           "config/database.yml with --database"
      end

      def named(database)
        base = Class.new(::ActiveRecord::Base) do
          self.abstract_class = true
          def self.name = "ChatonImport"
        end
        base.establish_connection(database.to_sym)
        connection = leased(base.connection_pool)
        return connection if connection.data_source_exists?(@source.jobs)

        raise ConfigError, "database #{database} has no table #{@source.jobs}"
      end

      # Rails 7.2 renamed it, and Rails 8 has the old name no more.
      def leased(pool) = pool.respond_to?(:lease_connection) ? pool.lease_connection : pool.connection

      # A worker that goes on could run a job that is enqueued here already.
      def check_stopped
        return unless @connection.data_source_exists?(@source.processes)

        since = @connection.quote(::Time.now.utc - ALIVE_S)
        alive = @connection.select_value("SELECT count(*) FROM #{@source.processes} WHERE #{@source.beat}>#{since}")
        return if alive.to_i.zero?

        raise ConfigError, "#{@from} has #{alive} processes that run, or ran within #{ALIVE_S / 60} minutes, and its " \
                           "tables are not in the database of the store (#{Jobs.settings.store_shown}): stop it first"
      end

      def pass(kind, sql)
        last = @source.from
        loop do
          rows = @connection.transaction { step(kind, format(sql, last: last, lock: lock)) }
          break if rows.empty?

          last = @connection.quote(rows.last.id)
          yield @taken if block_given?
        end
      end

      # SQLite has one writer, and no locks of rows.
      def lock = @connection.adapter_name.match?(/sqlite/i) ? "" : "FOR UPDATE OF e SKIP LOCKED"

      def step(kind, sql)
        rows = @connection.select_rows(sql).map { |values| Row.new(*values) }
        done = rows.select { |row| take(kind, row) }
        @taken[kind] += done.size if done.any?
        numbers = done.map { |row| @connection.quote(row.job) }
        @connection.execute("DELETE FROM #{@source.jobs} WHERE id IN (#{numbers.join(",")})") if numbers.any?
        rows
      end

      # @return [Boolean] whether the row can go
      def take(kind, row)
        job = ::ActiveJob::Base.deserialize(JSON.parse(row.data))
        return bury(job, row) if kind == "failed"
        return true if @adapter.take_over(job, at: due(row.at), connection: @own)

        leave("an equal unique job exists")
      rescue NameError, JSON::ParserError, ::ActiveJob::DeserializationError, ArgumentError => e
        leave("#{e.class}: #{e.message}")
      end

      def leave(reason)
        @left[reason] += 1
        false
      end

      # @return [Float, nil] nil: now
      def due(at)
        return if at.nil?

        at = ::Time.parse("#{at} UTC") if at.is_a?(String)
        at.to_f if at.to_f > Clock.now_s
      end

      # Into the dead set, as a job that has failed for good.
      def bury(job, row)
        now = Clock.now_s
        item = @adapter.document(job).merge("jid" => SecureRandom.hex(Client::JID_BYTES), **failure(row.error, now))
        @client.native.add("dead", now, JSON.generate(item))
        true
      end

      # Solid Queue has the error as JSON, GoodJob as "Class: message".
      def failure(error, now)
        stamp = Clock.stamp(@client.format, now)
        error = error.to_s
        known = error.start_with?("{") ? JSON.parse(error) : {}
        name, message = known.values_at("exception_class", "message")
        name, message = error.split(": ", 2) unless name
        { "error_class" => name.to_s, "error_message" => message.to_s, "failed_at" => stamp, "created_at" => stamp,
          "retry_count" => 0 }
      end
    end
  end
end
