# frozen_string_literal: true

require_relative "../telemetry/redirect"
require_relative "control_server"
require_relative "../worker/hooks"
require_relative "listeners"
require_relative "notify"
require_relative "pidfile"
require_relative "relaunch"
require_relative "remote"

module Chaton
  class Supervisor
    # What a main process owns beside the work itself: output files, pidfile,
    # listening sockets, control socket, the link to the service manager, and the
    # way to start the program again. The same with workers and without.
    class Surroundings
      # @return [Listeners]
      attr_reader :listeners
      # @return [Relaunch]
      attr_reader :relaunch
      # @return [Notify]
      attr_reader :notify
      # @return [Hooks]
      attr_reader :hooks

      # @param plan [Chaton::Config::Plan]
      # @param argv [Array<String>]
      # @param log [Telemetry::Log]
      def initialize(plan, argv:, log:)
        @log = log
        @plan = plan
        @relaunch = Relaunch.new(argv)
        @redirect = Telemetry::Redirect.of(plan.stdout_redirect)
        @pidfile = plan.pidfile && Pidfile.new(plan.pidfile, log: log)
        @listeners = Listeners.new(plan.binds, log: log)
        @control = ControlServer.new(plan.control_socket, log: log)
        @notify = Notify.new
        @hooks = Worker::Hooks.new(plan.hooks, log: log)
      end

      # @return [Array<Object>] sources of the event loop
      def sources
        [@control, @notify]
      end

      # Opens output files and notes the pid.
      #
      # @return [void]
      # @raise [Chaton::Error]
      def enter
        @redirect.open
        @pidfile&.write
      end

      # Opens the listening sockets.
      #
      # @return [void]
      # @raise [BindError]
      def listen
        @listeners.open
      end

      # Opens the control socket.
      #
      # @param helm [Object] carries out its commands, see {Remote}
      # @return [void]
      def take_orders(helm)
        @control.open(&Remote.new(helm).method(:call))
      end

      # Says that the work is done from now on.
      #
      # @param fields [Hash{Symbol=>Object}] for the log
      # @return [void]
      def ready(**fields)
        addresses = @listeners.addresses.join(" ")
        listen = addresses.empty? ? {} : { listen: addresses }
        @log.info("ready", **listen, environment: @plan.environment, **fields)
        @notify.ready([("serving #{addresses}" unless addresses.empty?), ("running jobs" if @plan.role?(:jobs)),
                       ("consuming streams" if @plan.role?(:streams))]
          .compact.join(", "))
      end

      # A log rotator's signal; also what a closing terminal sends.
      #
      # @return [Boolean] false when no output is redirected, so that it can only
      #   have been the terminal
      def reopen_output
        return false unless @redirect.any?

        @redirect.reopen
        @log.info("output files opened again")
        true
      rescue SystemCallError => e
        @log.exception(e, "an output file cannot be opened again; the old one is kept")
        true
      end

      # Starts the program again in this process, with the listening sockets.
      #
      # @param environment [Hash{String=>String}] further variables
      # @return [Integer] exit status, only when that fails
      def start_again(environment = {})
        @hooks.run_all(:on_restart)
        @control.close
        @log.info("starting again in place")
        @relaunch.exec(@listeners.sockets, environment: environment)
      rescue SystemCallError => e
        @log.exception(e, "the program cannot be started again")
        leave
        1
      end

      # Closes and removes everything of ours.
      #
      # @return [void]
      def leave
        @control.close
        @listeners.close
        @pidfile&.remove
      end

      # Closes the descriptors of the main process; in a forked child.
      #
      # @return [void]
      def let_go
        @control.let_go
      end
    end
  end
end
