# frozen_string_literal: true

require_relative "jobs_server"
require_relative "postgres_server"
require_relative "role_test_case"

# For tests of the role jobs. `each_store def test_it` defines one test for SQLite and one for Redis, `every_store
# def test_it` also one for PostgreSQL: where kills, forks, wakes or the queries of people meet the store.
module JobsTest
  include RoleTest

  # Or those that `CHATON_TEST_STORES` names.
  STORES = ENV.fetch("CHATON_TEST_STORES", "sqlite redis").split.map(&:to_sym).freeze
  # A job that notes its argument.
  NOTE = <<~RUBY
    class Note
      include Chaton::Job
      def perform(id) = Recorder.note(id)
    end
  RUBY
  # It takes 2 ms, so that some wait and some run when something happens.
  SLOW_NOTE = <<~RUBY
    class Note
      include Chaton::Job
      def perform(id, *)
        sleep 0.002
        Recorder.note(id)
      end
    end
  RUBY

  # For test classes.
  module EachStore
    include RoleTest::EachKind

    def each_store(name) = each_kind(STORES, name)

    def every_store(name) = each_kind(STORES | %i[postgres], name)
  end

  def self.included(base)
    super
    base.extend(EachStore)
  end

  # @return [String] the address of this test's store
  def store
    @store ||= case kind
               when :redis then redis.url
               when :postgres then postgres_url
               else "sqlite://#{File.join(scratch, "jobs.db")}"
               end
  end

  # @return [RedisServer] of this test
  def redis = @redis ||= start_redis

  # @return [String] the address of a new database
  def postgres_url = PostgresServer.shared.url(PostgresServer.shared.create_database)

  # @return [RedisServer] a further one
  def start_redis(options = {}, password: nil)
    server = RedisServer.new(options, password: password)
    (@stores ||= []) << server
    server.start
  end

  # @return [JobsServer] not started
  def prepare_jobs(jobs = "", **options)
    server = JobsServer.new(store: store, jobs: jobs, **options)
    (@servers ||= []) << server
    yield server if block_given?
    server
  end

  # @return [JobsServer] started, not yet ready
  def launch_jobs(jobs = "", **options, &block) = prepare_jobs(jobs, **options, &block).start

  # @return [JobsServer] whose workers are ready
  def boot_jobs(jobs = "", **options, &block) = launch_jobs(jobs, **options, &block).ready

  # @return [Hash{String=>Integer}]
  def stats(console) = console.run("Chaton::Jobs::Stats.new.to_h")

  # Waits until no job is enqueued, running, scheduled or waiting for a retry.
  def drained(server, console, timeout_s: WAIT_S)
    server.eventually("all jobs have ended", timeout_s: timeout_s) do
      stats(console).values_at("enqueued", "in_flight", "scheduled", "retries").all?(&:zero?)
    end
  end

  # @return [Array<Hash>] documents of a queue or set, the next one first
  def documents(console, place)
    console.run("Chaton::Jobs.client.native.list(#{place.dump}, 0, 1_000).map { |_, _, text| JSON.parse(text) }")
  end
end
