# frozen_string_literal: true

require_relative "jobs_server"

# For Minitest: tests of the role jobs. `each_store def test_it` makes one test for each kind of store.
module JobsTest
  include ServerTest

  STORES = %i[sqlite redis].freeze
  # Long enough for a machine that builds and tests at once.
  WAIT_S = 30

  # For the classes of tests.
  module EachStore
    # @param name [Symbol] what `def` answers
    def each_store(name)
      body = instance_method(name)
      remove_method(name)
      STORES.each do |kind|
        define_method("#{name}_on_#{kind}") do
          @kind = kind
          body.bind_call(self)
        end
      end
    end
  end

  def self.included(base)
    super
    base.extend(EachStore)
  end

  attr_reader :kind

  # @return [String] the address of this test's store, from any server's directory
  def store
    @store ||= kind == :redis ? redis.url : "sqlite://#{File.join(scratch, "jobs.db")}"
  end

  # @return [RedisServer] this test's
  def redis = @redis ||= start_redis

  # @return [RedisServer] one more
  def start_redis(options = {}, password: nil)
    server = RedisServer.new(options, password: password)
    (@redises ||= []) << server
    server.start
  end

  # @return [String] a directory of this test's
  def scratch = @scratch ||= Dir.mktmpdir("chaton-jobs")

  # @return [JobsServer] a directory with everything in it; nothing runs
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

  # @return [Console] in a server's directory
  def console(server, **options)
    made = Console.new(server.dir, **options)
    (@consoles ||= []) << made
    made
  end

  # @return [Hash{String=>Integer}]
  def stats(console) = console.run("Chaton::Jobs::Stats.new.to_h")

  # Waits until nothing waits, runs or is to be tried again.
  def drained(server, console, timeout_s: WAIT_S)
    server.eventually("all jobs have ended", timeout_s: timeout_s) do
      stats(console).values_at("enqueued", "in_flight", "scheduled", "retries").all?(&:zero?)
    end
  end

  # @return [Array<Hash>] documents of a place, the next one first
  def documents(console, place)
    console.run("Chaton::Jobs.client.native.list(#{place.dump}, 0, 1_000).map { |_, _, text| JSON.parse(text) }")
  end

  def teardown
    (@consoles || []).each(&:close)
    super
    (@redises || []).each(&:close)
    FileUtils.remove_entry(@scratch) if @scratch
  end
end
