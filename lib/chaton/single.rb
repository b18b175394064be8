# frozen_string_literal: true

require_relative "boot_signals"
require_relative "memory/settle"
require_relative "native"
require_relative "workload"
require_relative "workload/code"
require_relative "supervisor/event_loop"
require_relative "supervisor/reaper"
require_relative "supervisor/preloader"
require_relative "supervisor/process_resources"
require_relative "supervisor/single_controller"
require_relative "supervisor/start_failure"
require_relative "telemetry/log"
require_relative "telemetry/title"
require_relative "worker/signal_queue"

module Chaton
  # One process that does everything without a supervisor (`workers 0`): the same signals, sockets, pidfile and control
  # socket, and no fork.
  class Single
    # @param argv [Array<String>] the command line's arguments, needed to start again
    # @param app [#call, nil] an application that is loaded already (by a Rack handler)
    def initialize(plan, argv: [], app: nil, log: Telemetry::Log.of(plan))
      @plan = plan.of_process(plan.roles)
      @argv = argv
      @app = app
      @log = log
    end

    # @return [Integer] exit status
    def run
      return refuse_to_preload if Supervisor::Preloader.requested?

      BootSignals.hold
      boot
      serve
      finish
    rescue Chaton::Error, SignalException => e
      Supervisor::StartFailure.report(@resources&.fatal_logs || [@log], e)
    ensure
      @resources&.release
    end

    private

    def boot
      @resources = Supervisor::ProcessResources.new(@plan, argv: @argv, log: @log)
      @resources.acquire
      @scoreboard = Native::Scoreboard.new(1)
      Supervisor::TicketHandover.take(@scoreboard)
      @resources.admin.open(@scoreboard)
      load_code
      @resources.listen
      Telemetry::Title.single(roles: @plan.roles, tag: @plan.tag, listen: @resources.listeners.addresses)
      context = Workload::ProcessContext.new(roles: @plan.roles, scoreboard: @scoreboard, slot: 0)
      @workload = Workload.new(@plan, app: @app, sockets: @resources.listeners.sockets.values, context: context,
                                      log: @log)
    end

    def load_code
      return Workload::Code.follow(@plan, @plan.roles, log: @log) if @app

      @app = Workload::Code.load(@plan, @plan.roles, log: @log)
      Memory::Settle.new(@plan, log: @log).call
    end

    def serve
      parts = { workload: @workload, resources: @resources, scoreboard: @scoreboard, log: @log }
      @controller = Supervisor::SingleController.new(@plan, **parts)
      signals = Worker::SignalQueue.new(Supervisor::SignalCommands.signals(@plan)) do |name|
        @controller.handle_signal(name)
      end
      BootSignals.pass_to(signals, Supervisor::SignalCommands.signals(@plan))
      Worker::ForkedChild.prepare(Supervisor::SignalCommands.signals(@plan)) do
        signals.close
        @workload.close_in_child
        @resources.close_in_child
      end
      @workload.start do
        @resources.open_control_socket(@controller)
        @resources.open_services(@controller)
        @controller.become_ready
      end
      events = Supervisor::EventLoop.new([signals, @controller, Supervisor::OrphanReaper.new, *@resources.sources])
      until @controller.done?
        @resources.admin.report(@controller)
        events.turn
      end
    end

    def finish
      if @controller.state == :restarting
        return @resources.restart_in_place(@scoreboard, @controller.restart_environment)
      end

      @resources.hooks.run_all(:after_stopped)
      @log.info("stopped", status: 0)
      return 0 if @controller.complete?

      # A normal exit would wait for the threads that did not finish in time.
      @resources.release
      exit!(0)
    end

    def refuse_to_preload
      require_relative "supervisor/preloader_process"
      process = Supervisor::PreloaderProcess.fresh(@plan, log: @log)
      process.refuse(ConfigError.new("the new configuration has no workers; restart in full (SIGUSR2)"))
    end
  end
end
