# frozen_string_literal: true

require "test_helper"
require "chaton/errors"
require "chaton/native"
require "json"
require "timeout"
require "support/default_settings"
require "tmpdir"

# A store in a SQLite file of this test, and what the tests of jobs at the boundary do with it. With CHATON_GC_STRESS=1
# every allocation of a block given to `stressed` collects.
module JobsCase
  STRESS = ENV.key?("CHATON_GC_STRESS")
  # Longest wait for anything; under stress everything takes many times as long.
  WAIT_S = STRESS ? 120 : 20

  # Where the file is: in memory where the system has such a folder.
  FOLDER = File.directory?("/dev/shm") ? "/dev/shm" : Dir.tmpdir
  STORE = DEFAULT_SETTINGS[:jobs][:store].except(:url)
    .merge(connect_timeout_s: 2.0, answer_timeout_s: 2.0, durable: false, lock_timeout_s: 2.0, dead_max: 100,
           dead_age_s: 3600.0).freeze
  POOL = { **DEFAULT_SETTINGS[:pool], threads_max: 4, orphan_exit_s: 5.0 }.freeze
  ENGINE = DEFAULT_SETTINGS[:jobs]
    .merge(queues: [["q", 1], ["low", 1]], prefetch_max: 100, beat_s: 5.0, log: { per_s: 0, info: true },
           tag: "test", labels: ["a"]).freeze

  def teardown
    @client&.close
    FileUtils.remove_entry(@store_folder) if @store_folder
    super
  end

  # @return [Hash] settings of this test's own store
  def store_settings(**changes)
    @store_folder ||= Dir.mktmpdir("chaton-jobs", FOLDER)
    { **STORE, url: "sqlite://#{@store_folder}/jobs.db", **changes }
  end

  # @return [Chaton::Native::JobsClient]
  def client = @client ||= new_client

  def new_client(**changes) = Chaton::Native::JobsClient.new(JSON.generate(store_settings(**changes)))

  # A pool whose settings of jobs have these changes.
  def new_pool(slot: 0, **changes)
    document = { pool: { **POOL, slot: slot }, jobs: { **ENGINE, store: store_settings, **changes } }
    Chaton::Native::Pool.new(JSON.generate(document), Chaton::Native::Scoreboard.new(slot + 1), nil)
  end

  def head(class_name = "A", queue = "q")
    JSON.generate({ "retry" => true, "queue" => queue, "class" => class_name }).chop
  end

  # @return [Array<Hash>] the documents of a place
  def documents(place = "queue:q")
    client.list(place, 0, 10_000).map { |_, _, payload| JSON.parse(payload) }
  end

  def stressed
    GC.stress = STRESS
    yield
  ensure
    GC.stress = false
  end

  # Waits for a condition.
  def eventually
    Timeout.timeout(WAIT_S) { sleep 0.001 until yield }
  end
end

# An engine over that store, with a native_pool and the pool thread that the calling thread is.
module JobsEngineCase
  include JobsCase

  def setup
    @table = Chaton::Native::InFlightTable.new(2, 4)
    @native_pool = new_pool
    @pool_thread = @native_pool.enter
  end

  def teardown
    @engine&.stop
    @pool_thread.leave
    @native_pool.close
    @native_pool.shut
    super
  end

  def start(pool: @native_pool, crons: [], claim_due: false)
    @engine = Chaton::Native::Jobs.start(pool, @table, crons, claim_due).tap(&:resume)
  end

  def take = Timeout.timeout(JobsCase::WAIT_S) { @pool_thread.take }

  def run_one(args, class_name = "A")
    @engine || start
    client.push_args("q", head(class_name), [args], nil)
    take
  end

  def run_text(args)
    @engine || start
    client.push("q", %({"class":"A","args":#{args},"jid":"a"}), nil, nil, nil)
    take
  end

  def assert_idle = assert(@engine.wait_idle(JobsCase::WAIT_S))
end
