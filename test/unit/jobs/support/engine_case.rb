# frozen_string_literal: true

require_relative "jobs_unit_case"
require "support/default_settings"
require "chaton/native"
require "chaton/support_thread"
require "chaton/pool"

# The engine, the pool and the handler over a real store, in this process.
class EngineCase < JobsUnitCase
  STORE = DEFAULT_SETTINGS[:jobs][:store]
    .merge(answer_timeout_s: 10.0, lease_s: 30.0, dead_max: 100, dead_age_s: 3600.0).freeze
  POOL = { **DEFAULT_SETTINGS[:pool], threads_max: 8, stall_ms: 0.4 }.freeze
  ENGINE = DEFAULT_SETTINGS[:jobs]
    .merge(queues: [["default", 1], ["low", 1]], prefetch_max: 100, beat_s: 5.0, tag: "test",
           log: { per_s: 0, info: true }).freeze
  # Longest wait for anything.
  WAIT_S = 30
  # Between two looks at a condition.
  LOOK_S = 0.005

  def setup
    super
    @native = Chaton::Native::JobsClient.new(JSON.generate(settings))
    Chaton::Jobs.swap_client(client)
    Recorder.clear
  end

  def teardown
    stop
    @native.close if @native.respond_to?(:close)
    super
  end

  def settings = { **STORE, url: url }
  def stats = Chaton::Jobs::Stats.new(@native)

  # Runs jobs from now on.
  def start(claim_due: false)
    document = JSON.generate({ pool: POOL, jobs: { **ENGINE, store: settings } })
    @native_pool = Chaton::Native::Pool.new(document, Chaton::Native::Scoreboard.new(1), nil)
    @pool = Chaton::Pool.new(@native_pool, handler, log: log)
    events = %i[orphan recover signal].to_h { |name| [name, ->(_) {}] }
    @support_thread = Chaton::SupportThread.new(@native_pool, @pool, log: log, on: events).start
    @native_pool.expect(1)
    @pool.spawn(1)
    @engine = Chaton::Native::Jobs.start(@native_pool, nil, [], claim_due).tap(&:resume)
  end

  def stop
    return unless @engine

    @engine.stop
    @native_pool.close
    @pool.join(WAIT_S)
    @support_thread.stop
    @native_pool.shut
    @engine = nil
  end

  # Waits for a condition; says what was logged when it does not come.
  def eventually
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + WAIT_S
    until yield
      flunk "waited in vain; #{stats.to_h}\n#{logged}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep LOOK_S
    end
  end

  # What jobs did, in order.
  module Recorder
    @lock = Mutex.new
    @seen = []

    def self.clear = @lock.synchronize { @seen.clear }
    def self.<<(entry) = @lock.synchronize { @seen << entry }
    def self.seen = @lock.synchronize { @seen.dup }
  end
end
