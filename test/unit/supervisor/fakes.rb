# frozen_string_literal: true

require "stringio"
require "chaton/config/settings"
require "chaton/supervisor/worker_set"
require "chaton/telemetry/log"

# Stand-ins for what surrounds a worker_set: nothing is forked.
module SupervisorFakes
  Plan = Struct.new(:workers, :boot_timeout_s, :shutdown_timeout_s, :alive_timeout_s, :restart_delay_s,
                    :restart_delay_max_s, :crash_loop_count, :crash_loop_window_s, :roles, :memory, :retiring,
                    keyword_init: true) do
    def preload? = true
    def retires_first?(index) = Array(retiring).include?(index)

    def roles_of(index) = roles.fetch(index, roles.first)
    def of_process(_roles) = self
  end

  # Notes which children it was asked for and keeps the worker's end of the channel.
  class Forker
    attr_reader :generation, :asked, :reason, :told
    attr_accessor :state

    def initialize(generation = 0, state: :ready)
      @generation = generation
      @state = state
      @asked = []
      @told = []
      @retired = false
    end

    def fork_worker(child, theirs)
      @asked << [child, theirs]
    end

    def worker_ended(payload) = @told << payload
    def ready? = @state == :ready
    def dead? = @state == :dead
    def kill = @state = :killed
    def retire = @retired = true
    def retired? = @retired

    def fail(reason)
      @reason = reason
      @state = :dead
    end
  end

  class FakeScoreboard
    attr_reader :cleared, :gauges

    def initialize
      @cleared = []
      @gauges = Hash.new { |all, scoreboard_slot| all[scoreboard_slot] = {} }
    end

    def read(scoreboard_slot) = @gauges[scoreboard_slot]

    def note_stop(scoreboard_slot, replaced) = @gauges[scoreboard_slot][:replaced] = replaced

    def clear(scoreboard_slot)
      @cleared << scoreboard_slot
    end
  end

  private

  def compacting(value) = Chaton::Config::MemorySettings.new(compact: value)

  def build_worker_set(workers: 2, job_recovery: nil, batch_deaths: nil, **changes)
    settings = { workers: workers, boot_timeout_s: 10, shutdown_timeout_s: 5, alive_timeout_s: 0, restart_delay_s: 1,
                 restart_delay_max_s: 4, crash_loop_count: 2, crash_loop_window_s: 60, roles: [[:web]],
                 memory: compacting(true) }
    @output = StringIO.new
    @log = Chaton::Telemetry::Log.new(io: @output)
    @forker = Forker.new
    @scoreboard = FakeScoreboard.new
    plan = Plan.new(**settings, **changes)
    @worker_set = Chaton::Supervisor::WorkerSet.new(plan, forker: @forker, scoreboard: @scoreboard, log: @log,
                                                          job_recovery: job_recovery&.call(@log),
                                                          batch_deaths: batch_deaths&.call(@log))
    @worker_set.open(workers)
    tick
  end

  def tick(after_s = 0)
    @worker_set.tick(Chaton::Supervisor::EventLoop.now_s + after_s)
  end

  # The child's worker says ready.
  def make_ready(child)
    theirs = all_asked.find { |one, _| one.equal?(child) }.last
    theirs.write("+")
    @worker_set.readable(child.channel.io)
  end

  def all_asked
    [@forker, @other].compact.flat_map(&:asked)
  end

  def lose(child, reason = "killed by SIGKILL")
    @worker_set.fork_failed(child, reason)
  end
end
