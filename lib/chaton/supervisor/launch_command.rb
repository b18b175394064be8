# frozen_string_literal: true

require "json"
require "rbconfig"
require_relative "../boot_signals"
require_relative "inherited_sockets"
require_relative "memory_restarts"
require_relative "ticket_handover"

module Chaton
  class Supervisor
    # The command line, directory, environment and limit of open files with which this program was started. It starts
    # the program again with the code on disk: in place (`exec`, a full restart) or beside this process (`spawn`, a
    # preloader, which inherits the raised limit).
    #
    # Made before the application is loaded, so that the application's changes to the environment are not passed on.
    class LaunchCommand
      # Set by the service manager for one process.
      ONE_TIME = %w[LISTEN_PID LISTEN_FDS LISTEN_FDNAMES].freeze
      # Set by the process that started this one.
      INHERITED = [InheritedSockets::VARIABLE, InheritedSockets::ACTIVATED, MemoryRestarts::VARIABLE,
                   TicketHandover::VARIABLE].freeze
      # A process beside the main one must not report to the service manager.
      OF_MAIN_PROCESS = %w[NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID].freeze

      # @return [Array<Integer>] soft and hard limit
      attr_reader :open_files

      # @param argv [Array<String>] arguments of the command line
      def initialize(argv, program: $PROGRAM_NAME)
        @directory = directory
        @open_files = Process.getrlimit(:NOFILE)
        @environment = ENV.to_h.except(*ONE_TIME, *INHERITED)
        @program = File.expand_path(program)
        @command = [RbConfig.ruby, *load_path, @program, *argv]
      end

      # Replaces this process by a new start of the program; never returns.
      #
      # @param sockets [Hash{String=>IO}] listening sockets by bind
      # @param ios [Array<IO>] further descriptors to pass under their number
      # @param environment [Hash{String=>String}] further variables
      # @raise [SystemCallError] when the program cannot be started
      def exec(sockets, ios: [], environment: {})
        environment = @environment.merge(InheritedSockets.to_env(sockets), environment)
        BootSignals.ignore
        Process.exec(environment, *@command, unsetenv_others: true, chdir: @directory, rlimit_nofile: @open_files,
                                             **kept(sockets.values + ios))
      end

      # Looked at before a server stops serving to start again.
      #
      # @return [String, nil] why the program cannot be started
      def hindrance
        return "the directory #{@directory} is missing" unless File.directory?(@directory)
        return "#{@command.first} cannot be run" unless File.executable?(@command.first)

        "#{@program} is missing" unless File.file?(@program)
      end

      # Starts the program beside this process.
      #
      # @param sockets [Hash{String=>IO}] listening sockets by bind
      # @param ios [Array<IO>] further descriptors to pass under their number
      # @param environment [Hash{String=>String}] further variables
      # @raise [SystemCallError] when the program cannot be started
      def spawn(sockets, ios:, environment:)
        variables = environment_beside.merge(InheritedSockets.to_env(sockets), environment)
        Process.spawn(variables, *@command, unsetenv_others: true, chdir: @directory, **kept(sockets.values + ios))
      end

      # @return [Hash{String=>String}] for a process beside the main one
      def environment_beside = @environment.except(*OF_MAIN_PROCESS)

      private

      # A symbolic link stays as it was typed: after a deployment that moves the link, its new target is used.
      def directory
        shell = ENV.fetch("PWD", nil)
        shell && File.identical?(shell, Dir.pwd) ? shell : Dir.pwd
      rescue SystemCallError
        Dir.pwd
      end

      # In a checkout, Ruby does not find the library by itself.
      def load_path
        Gem.loaded_specs.key?("chaton") ? [] : ["-I", File.expand_path("../..", __dir__)]
      end

      def kept(ios)
        ios.to_h { |io| [io.fileno, io.fileno] }
      end
    end
  end
end
