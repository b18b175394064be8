# frozen_string_literal: true

require_relative "native"
require_relative "supervisor/ceilings"
require_relative "supervisor/event_loop"
require_relative "supervisor/failure"
require_relative "supervisor/fleet"
require_relative "supervisor/helm"
require_relative "supervisor/ledger"
require_relative "supervisor/memory_limits"
require_relative "supervisor/memory_watch"
require_relative "supervisor/mold_process"
require_relative "supervisor/origins"
require_relative "supervisor/preload"
require_relative "supervisor/reaper"
require_relative "supervisor/recovery"
require_relative "worker/signals"
require_relative "supervisor/surroundings"
require_relative "telemetry/log"
require_relative "telemetry/title"
require_relative "worker"

module Chaton
  # The parent process: loads the application once, forks workers, watches them,
  # replaces the dead, carries out signals. It owns the listening sockets and
  # nothing else: no Rust runtime, no client of anything, no second thread.
  # docs/SIGNALS.md says what each signal does, docs/FORK_SAFETY.md what forks when.
  class Supervisor
    # @param plan [Chaton::Config::Plan]
    # @param argv [Array<String>] the command line's arguments, to start again with
    # @param log [Telemetry::Log]
    def initialize(plan, argv: [], log: Telemetry::Log.new(format: plan.log_format, level: plan.log_level))
      @plan = plan
      @argv = argv
      @log = log
    end

    # @return [Integer] exit status
    def run
      return MoldProcess.new(@plan, log: @log).run if MoldProcess.asked?

      boot
      start
      supervise
      leave
    rescue Chaton::Error, SignalException => e
      Failure.report(@log, e)
    ensure
      @surroundings&.leave
    end

    private

    # Everything that can fail for a reason outside, before the first worker.
    def boot
      @surroundings = Surroundings.new(@plan, argv: @argv, log: @log)
      @surroundings.enter
      @app = Preload.new(@plan, log: @log).load if @plan.preload?
      @limits = limits
      @surroundings.listen
      @surroundings.hooks.run(:before_fork)
      Native.become_subreaper
      Telemetry::Title.supervisor(tag: @plan.tag, listen: @surroundings.listeners.addresses)
    end

    def start
      @memory = memory
      @origins = Origins.new(@plan, @surroundings.relaunch, log: @log, in_child: method(:become_worker))
      recovery = @memory[:ledger] && Recovery.new(@memory[:ledger], log: @log)
      @fleet = Fleet.new(@plan, origin: @origins.first, board: @memory[:board], recovery: recovery, log: @log)
      @watch = MemoryWatch.new(@fleet, @limits, every_s: @plan.memory.check_every_s, parents: method(:parents))
      ceilings = Ceilings.new(@fleet, @limits, watch: @watch, board: @memory[:board], log: @log)
      @helm = Helm.new(@plan, fleet: @fleet, origins: @origins, memory: @memory, ceilings: ceilings,
                              surroundings: @surroundings, log: @log)
      @reaper = Reaper.new(@fleet, @origins)
      @signals = Worker::Signals.new([*Orders.signals(@plan), "CHLD"]) do |name|
        name == "CHLD" ? @reaper.call : @helm.obey(name)
      end
      @surroundings.take_orders(@helm)
      @fleet.open(@plan.workers)
    end

    # What all processes of the tree share: made before the first fork.
    def memory
      slots = Fleet.slots(@plan.workers)
      { board: Native::Scoreboard.new(slots), ledger: Ledger.make(@plan, slots) }
    end

    # @raise [ConfigError] when what was loaded is above the ceiling of a worker
    def limits
      limits = MemoryLimits.read(@plan.memory, log: @log)
      usage = Native::Memory.process(Process.pid) if @plan.preload?
      limits.check(usage&.fetch(:pss), sharers: @plan.workers + 1)
      limits
    end

    # Processes of the tree beside the workers.
    def parents = [Process.pid, *@origins.pids]

    def supervise
      events = EventLoop.new([@signals, @origins, @fleet, @watch, *@surroundings.sources])
      until @helm.done?
        events.turn
        @helm.steer
      end
    end

    def leave
      return @surroundings.start_again if @helm.state == :restarting

      @log.info("stopped", status: @helm.exit_status)
      @helm.exit_status
    end

    # Runs in a forked child: lets go of what is the supervisor's, so that its
    # death can be noticed, and lives as a worker.
    def become_worker(child, leash)
      [@fleet, @origins, @surroundings].each(&:let_go)
      kit = Worker::Kit.new(plan: @plan, loaded: @plan.preload?, app: @app, log: @log, **@memory,
                            sockets: @surroundings.listeners.sockets.values)
      Worker.live(kit, index: child.index, slot: child.slot, generation: child.origin.generation, leash: leash,
                       inherited: @signals)
    end
  end
end
