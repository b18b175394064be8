# frozen_string_literal: true

require_relative "boot_signals"
require_relative "memory/settle"
require_relative "native"
require_relative "supervisor/ceiling_enforcer"
require_relative "supervisor/listeners"
require_relative "supervisor/controller"
require_relative "supervisor/event_loop"
require_relative "supervisor/forkers"
require_relative "supervisor/job_recovery"
require_relative "supervisor/memory_limits"
require_relative "supervisor/memory_monitor"
require_relative "supervisor/preloader"
require_relative "supervisor/process_resources"
require_relative "supervisor/reaper"
require_relative "supervisor/shared_memory"
require_relative "supervisor/start_failure"
require_relative "supervisor/worker_set"
require_relative "telemetry/log"
require_relative "telemetry/title"
require_relative "worker/forked_child"
require_relative "worker/signal_queue"

module Chaton
  # The parent process: it has workers forked by a preloader, which loads the application, watches them, replaces those
  # that die, and handles signals. It owns the listening sockets and has no code of the application, no Rust runtime, no
  # client of any service and no second thread. docs/SIGNALS.md describes each signal, docs/FORK_SAFETY.md what is
  # forked when.
  class Supervisor
    # @param argv [Array<String>] the command line's arguments, needed to start again
    def initialize(plan, argv: [], log: Telemetry::Log.of(plan))
      @plan = plan
      @argv = argv
      @log = log
    end

    # @return [Integer] exit status
    def run
      Preloader.requested? ? preloader_process.fresh(@plan, log: @log).run : run_server
    end

    private

    # What only preloaders and workers need is loaded there: the supervisor shares next to nothing with them.
    def preloader_process
      require_relative "supervisor/preloader_process"
      PreloaderProcess
    end

    def run_server
      BootSignals.hold
      failed = boot and return failed
      start
      supervise
      finish
    rescue Chaton::Error, SignalException => e
      StartFailure.report(@resources&.fatal_logs || [@log], e)
    ensure
      @forkers&.abort
      @resources&.release
    end

    # Everything that can fail for an external reason comes before the first worker.
    #
    # @return [Integer, nil] exit status when the application cannot be loaded, which has been reported
    def boot
      @resources = ProcessResources.new(@plan, argv: @argv, log: @log)
      free_children
      @resources.acquire
      @memory = SharedMemory.create(@plan, WorkerSet.scoreboard_slots(@plan.workers))
      TicketHandover.take(@memory.scoreboard)
      @resources.admin.open(@memory.scoreboard) { close_in_admin }
      Memory::Settle.of_supervisor(@plan)
      @limits = MemoryLimits.read(@plan.memory, log: @log)
      Native.become_subreaper
      @resources.listen do
        failed = first_forker and return failed
      end
      Telemetry::Title.supervisor(tag: @plan.tag, listen: @resources.listeners.addresses)
      nil
    end

    # @return [Integer, nil] exit status when the application cannot be loaded
    # @raise [ConfigError] when the loaded application alone is above a worker's ceiling
    def first_forker
      parts = { sockets: @resources.listeners.sockets, memory: @memory, log: @log, in_child: method(:become_worker) }
      @forkers = Forkers.new(@plan, @resources.launch_command, **parts) do |child, reason, **how|
        @worker_set.fork_failed(child, reason, **how)
      end
      @forker = @forkers.next
      if @plan.preload?
        ended = @forker.boot(beside: [@resources.admin]) { |socket| become_preloader(socket) }
        return status_of(ended) if ended

        @limits.check(Native::Memory.process(@forker.pid)&.fetch(:pss), sharers: @plan.workers + 1)
      else
        require_relative "worker"
        @resources.hooks.run(:before_fork)
      end
      nil
    end

    # @param ended [Process::Status] of the process that should have loaded the application
    # @return [Integer] exit status: its own, because it has reported why
    def status_of(ended)
      return ended.exitstatus if ended.exited?
      raise SignalException, "SIGTERM" if ended.termsig == Signal.list.fetch("TERM")

      raise AppLoadError, "the process that loads the application was #{WorkerReport.describe(ended)}; what it wrote " \
                          "is above, and the kernel's log (dmesg) tells whether memory ran out"
    end

    # Of the children that hooks and the application fork from this process.
    def free_children
      Worker::ForkedChild.prepare([*SignalCommands.signals(@plan), *BootSignals::NAMES, "CHLD"].uniq) do
        @signals&.close
        [@worker_set, @forkers, @resources].each { |owner| owner&.close_in_child }
        @resources.listeners.close
      end
    end

    def start
      jobs, batches, deaths = @memory.in_flight_table, @memory.batch_table, @memory.death_table
      @worker_set = WorkerSet.new(@plan, forker: @forker, scoreboard: @memory.scoreboard, log: @log,
                                         job_recovery: jobs && JobRecovery.new(jobs, log: @log),
                                         batch_deaths: batches && BatchDeaths.new(batches, deaths, log: @log))
      @monitor = MemoryMonitor.new(@worker_set, @limits, every_s: @plan.memory.check_every_s, parents: method(:parents))
      @certificate_watch = CertificateWatch.new(@resources.listeners, @forkers, every_s: @plan.web.tls_reload_s)
      @controller = controller
      @reaper = Reaper.new(@worker_set, @forkers, @resources.services, @resources.admin)
      @signals = Worker::SignalQueue.new([*SignalCommands.signals(@plan), "CHLD"]) do |name|
        name == "CHLD" ? @reaper.call : @controller.handle_signal(name)
      end
      BootSignals.pass_to(@signals, SignalCommands.signals(@plan))
      @resources.open_control_socket(@controller)
      @resources.open_services(@controller)
      @worker_set.open(@plan.workers)
      # The process of the admin endpoint may have ended before its end could be noticed.
      @reaper.call
    end

    def controller
      ceilings = CeilingEnforcer.new(@worker_set, @limits, monitor: @monitor, scoreboard: @memory.scoreboard, log: @log)
      Controller.new(@plan, worker_set: @worker_set, forkers: @forkers, scoreboard: @memory.scoreboard,
                            ceilings: ceilings, resources: @resources, certificate_watch: @certificate_watch, log: @log)
    end

    # Processes of the tree that are not workers.
    def parents = [Process.pid, *@forkers.pids]

    def supervise
      events = EventLoop.new([@signals, @forkers, @worker_set, @monitor, @certificate_watch, *@resources.sources])
      until @controller.done?
        @resources.admin.report(@controller)
        events.turn
        @controller.update
      end
    end

    def finish
      return @resources.restart_in_place(@memory.scoreboard) if @controller.state == :restarting

      @resources.hooks.run_all(:after_stopped)
      @log.info("stopped", status: @controller.exit_status)
      @controller.exit_status
    end

    # Runs in a forked child. It closes the supervisor's descriptors first, so that the end of the supervisor can be
    # noticed.
    #
    # @return [Integer] exit status
    def become_preloader(socket)
      @resources.close_servers_in_child
      process = preloader_process.new(@plan, generation: @forker.generation, socket: socket,
                                             logs: @resources.fatal_logs) { [@resources.listeners, @memory] }
      process.run { @resources.forget_original }
    end

    # Runs in the process of the admin endpoint, which keeps the scoreboard and the endpoint's sockets.
    def close_in_admin
      @signals&.close
      [@worker_set, @forkers].each { |owner| owner&.close_in_child }
      @resources.close_in_admin
    end

    # The same for a server without preload; never returns.
    def become_worker(child, channel)
      [@worker_set, @forkers, @resources].each(&:close_in_child)
      context = Worker::ForkContext.new(plan: @plan, loaded: false, log: @log, memory: @memory,
                                        sockets: @resources.listeners.sockets.values)
      Worker.live(context, index: child.index, scoreboard_slot: child.scoreboard_slot,
                           generation: child.forker.generation, channel: channel, inherited: @signals)
    end
  end
end
