# frozen_string_literal: true

require_relative "../file_limit"
require_relative "../telemetry/redirect"
require_relative "../worker/hooks"
require_relative "admin_endpoint"
require_relative "banner"
require_relative "control_commands"
require_relative "control_server"
require_relative "delayed_stop"
require_relative "launch_command"
require_relative "listeners"
require_relative "pidfile"
require_relative "restart_file"
require_relative "services"
require_relative "systemd_notify"
require_relative "ticket_handover"

module Chaton
  class Supervisor
    # What a main process owns, with workers and without: output files, pidfile, listening sockets, control socket, the
    # connection to the service manager, and the command that starts the program again.
    class ProcessResources
      attr_reader :listeners, :launch_command, :delayed_stop, :notify, :hooks, :services, :admin

      def initialize(plan, argv:, log:)
        @log = log
        @plan = plan
        @launch_command = LaunchCommand.new(argv)
        @redirect = Telemetry::Redirect.of(plan.stdout_redirect)
        @pidfile = plan.pidfile && Pidfile.new(plan.pidfile, log: log)
        inherited = InheritedSockets.new
        @admin = AdminEndpoint.new(plan, inherited: inherited, log: log)
        @listeners = Listeners.new(plan.binds, log: log, inherited: inherited)
        @delayed_stop = DelayedStop.new(@listeners, plan.stop_delay_s, log: log)
        @control = ControlServer.new(plan.control_socket, log: log)
        @notify = SystemdNotify.new
        @hooks = Worker::Hooks.new(plan.hooks, log: log)
        @restart_file = RestartFile.new(plan.restart_file, log: log)
        # With workers the supervisor gets SIGCHLD.
        @services = Services.new(plan, launch_command: @launch_command, log: log, reaps: plan.workers.zero?)
      end

      # @return [Array<Object>] sources of the event loop
      def sources = [@control, @notify, @delayed_stop, @restart_file, @services, @admin]

      # Raises the limit of open files, opens the output files and writes the pidfile.
      #
      # @raise [Chaton::Error]
      def acquire
        FileLimit.raise_soft
        FileLimit.check(@plan.web.connections_max, @log) if @plan.role?(:web)
        @redirect.open
        @pidfile&.write
      end

      # Starts the commands of `service` lines.
      def open_services(controller)
        @services.open
        @restart_file.open { controller.phased_restart }
      end

      # Opens the listening sockets.
      #
      # @yield before clients can connect to those that are new
      # @raise [BindError]
      def listen
        @listeners.bind
        yield if block_given?
        @listeners.listen
      end

      # @param controller [Controller, SingleController] carries out the commands, see {ControlCommands}
      def open_control_socket(controller)
        @control.open(&ControlCommands.new(controller).method(:call))
      end

      # For an error that keeps the server from starting.
      #
      # @return [Array<Telemetry::Log>] the log, and standard error where that was redirected
      def fatal_logs
        original = @redirect.original
        [@log, *(Telemetry::Log.new(format: @plan.log_format, io: original) if original)]
      end

      # Reports to the log and to the service manager that the server serves.
      def ready(**fields)
        forget_original
        addresses = @listeners.addresses.join(" ")
        listen = { listen: addresses, admin: @admin.addresses.join(" ") }.reject { |_, text| text.empty? }
        @log.info("ready", **listen, environment: @plan.environment, **fields)
        @notify.ready([("serving #{addresses}" unless addresses.empty?), ("running jobs" if @plan.role?(:jobs)),
                       ("consuming streams" if @plan.role?(:streams))]
          .compact.join(", "))
      end

      # The same for people, once.
      #
      # @param pool_size [Integer, nil] of ActiveRecord's connection pool
      def greet(pool_size)
        @log.plain(Banner.text(@plan, @listeners.addresses, pool_size)) if @plan.development? || @log.terminal?
      end

      # @return [Boolean] false when no output is redirected
      def reopen_output
        return false unless @redirect.any?

        @redirect.reopen
        @log.info("output files reopened")
        true
      rescue SystemCallError => e
        @log.exception(e, "an output file cannot be reopened; output goes on into the old file")
        true
      end

      # Starts the program again in this process, with the listening sockets and the secret of TLS session tickets.
      #
      # @param scoreboard [Native::Scoreboard] has the secret
      # @param environment [Hash{String=>String}] further variables
      # @return [Integer] exit status, only when that fails
      def restart_in_place(scoreboard, environment = {})
        @hooks.run_all(:on_restart)
        @control.close
        @admin.stop
        @log.info("starting again in place")
        @notify.starting_again(@plan.boot_timeout_s)
        sockets = @listeners.sockets.merge(@admin.sockets)
        secret, variable = TicketHandover.pass(scoreboard)
        @launch_command.exec(sockets, ios: [secret].compact,
                                      environment: { **@listeners.environment, **variable, **environment })
      rescue SystemCallError => e
        @log.exception(e, "the program cannot be started again")
        release
        1
      end

      # Closes everything and removes the files it has made.
      def release
        @services.kill
        @control.close
        @listeners.close
        @admin.close
        @pidfile&.remove
      end

      # The server has started, or this is a child of another kind.
      def forget_original = @redirect.forget_original

      # Closes the main process's descriptors in a forked child.
      def close_in_child
        forget_original
        close_servers_in_child
      end

      # The same in the process of the admin endpoint, which keeps the sockets of that.
      def close_in_admin
        forget_original
        [@control, @services, @notify].each(&:close_in_child)
        @listeners.close
      end

      # The same, except standard error as it was.
      def close_servers_in_child
        [@control, @services, @admin, @notify].each(&:close_in_child)
      end
    end
  end
end
