# frozen_string_literal: true

require_relative "memory/settle"
require_relative "native"
require_relative "service"
require_relative "service/code"
require_relative "supervisor/event_loop"
require_relative "supervisor/failure"
require_relative "supervisor/mold_process"
require_relative "worker/signals"
require_relative "supervisor/single_helm"
require_relative "supervisor/surroundings"
require_relative "telemetry/log"
require_relative "telemetry/title"

module Chaton
  # One process that does everything without a supervisor (`workers 0`): the same
  # signals, sockets, pidfile and control socket, and no fork.
  class Single
    # @param plan [Chaton::Config::Plan]
    # @param argv [Array<String>] the command line's arguments, to start again with
    # @param app [#call, nil] an application somebody else has loaded (a Rack handler)
    # @param log [Telemetry::Log]
    def initialize(plan, argv: [], app: nil, log: Telemetry::Log.new(format: plan.log_format, level: plan.log_level))
      @plan = plan.of_process(plan.roles)
      @argv = argv
      @app = app
      @log = log
    end

    # @return [Integer] exit status
    def run
      return refuse_to_be_a_mold if Supervisor::MoldProcess.asked?

      boot
      serve
      leave
    rescue Chaton::Error, SignalException => e
      Supervisor::Failure.report(@log, e)
    ensure
      @surroundings&.leave
    end

    private

    def boot
      @surroundings = Supervisor::Surroundings.new(@plan, argv: @argv, log: @log)
      @surroundings.enter
      load_code
      @surroundings.listen
      Telemetry::Title.single(roles: @plan.roles, tag: @plan.tag, listen: @surroundings.listeners.addresses)
      @service = Service.new(@plan, app: @app, sockets: @surroundings.listeners.sockets.values,
                                    board: Native::Scoreboard.new(1), slot: 0, leash: nil, log: @log,
                                    duty: Service::Duty.new(roles: @plan.roles))
    end

    def load_code
      return Service::Code.follow(@plan, @plan.roles, log: @log) if @app

      @app = Service::Code.load(@plan, @plan.roles, log: @log)
      Memory::Settle.new(@plan, log: @log).call
    end

    def serve
      @helm = Supervisor::SingleHelm.new(@plan, service: @service, surroundings: @surroundings, log: @log)
      signals = Worker::Signals.new(Supervisor::Orders.signals(@plan)) { |name| @helm.obey(name) }
      @service.start
      @surroundings.take_orders(@helm)
      @helm.become_ready
      events = Supervisor::EventLoop.new([signals, @helm, *@surroundings.sources])
      events.turn until @helm.done?
    end

    def leave
      return @surroundings.start_again(@helm.bequest) if @helm.state == :restarting

      @log.info("stopped", status: 0)
      return 0 if @helm.complete?

      # Threads that did not finish in time would be waited for by a normal exit.
      @surroundings.leave
      exit!(0)
    end

    def refuse_to_be_a_mold
      mold = Supervisor::MoldProcess.new(@plan, log: @log)
      mold.refuse("the new configuration has no workers; restart in full (SIGUSR2)")
    end
  end
end
