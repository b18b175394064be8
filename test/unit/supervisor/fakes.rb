# frozen_string_literal: true

require "stringio"
require "chaton/config/memory_settings"
require "chaton/supervisor/fleet"
require "chaton/telemetry/log"

# Stand-ins for what surrounds a fleet: nothing is forked.
module SupervisorFakes
  Plan = Struct.new(:workers, :boot_timeout_s, :shutdown_timeout_s, :alive_timeout_s, :restart_delay_s,
                    :restart_delay_max_s, :crash_loop_count, :crash_loop_window_s, :roles, :memory, :retiring,
                    keyword_init: true) do
    def retires_first?(index) = Array(retiring).include?(index)

    def roles_of(index) = roles.fetch(index, roles.first)
    def of_process(_roles) = self
  end

  # Notes which children it was asked for and keeps the worker's end of the leash.
  class Origin
    attr_reader :generation, :asked, :reason
    attr_accessor :state

    def initialize(generation = 0, state: :ready)
      @generation = generation
      @state = state
      @asked = []
      @retired = false
    end

    def fork_worker(child, theirs)
      @asked << [child, theirs]
    end

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

  class Board
    attr_reader :cleared, :gauges

    def initialize
      @cleared = []
      @gauges = Hash.new { |all, slot| all[slot] = {} }
    end

    def read(slot) = @gauges[slot]

    def clear(slot)
      @cleared << slot
    end
  end

  private

  def compacting(value) = Chaton::Config::MemorySettings.new(compact: value)

  def build_fleet(workers: 2, recovery: nil, **changes)
    settings = { workers: workers, boot_timeout_s: 10, shutdown_timeout_s: 5, alive_timeout_s: 0, restart_delay_s: 1,
                 restart_delay_max_s: 4, crash_loop_count: 2, crash_loop_window_s: 60, roles: [[:web]],
                 memory: compacting(true) }
    @output = StringIO.new
    @log = Chaton::Telemetry::Log.new(io: @output)
    @origin = Origin.new
    @board = Board.new
    plan = Plan.new(**settings, **changes)
    @fleet = Chaton::Supervisor::Fleet.new(plan, origin: @origin, board: @board, log: @log,
                                                 recovery: recovery&.call(@log))
    @fleet.open(workers)
    tick
  end

  def tick(after_s = 0)
    @fleet.tick(Chaton::Supervisor::EventLoop.now_s + after_s)
  end

  # The child's worker says ready.
  def make_ready(child)
    theirs = all_asked.find { |one, _| one.equal?(child) }.last
    theirs.write("+")
    @fleet.readable(child.leash.io)
  end

  def all_asked
    [@origin, @other].compact.flat_map(&:asked)
  end

  def lose(child, reason = "killed by SIGKILL")
    @fleet.missed(child, reason)
  end
end
