# frozen_string_literal: true

require "json"
require "rbconfig"
require_relative "inherited_sockets"
require_relative "own_restarts"

module Chaton
  class Supervisor
    # How this program was started, to start it again with the code that is on
    # disk by then: in place (`exec`, a full restart) or beside it (`spawn`, a mold).
    #
    # Made before the application is loaded, so that what it does to the
    # environment is not handed on.
    class Relaunch
      # Named by the service manager for one process and one start only.
      ONE_TIME = %w[LISTEN_PID LISTEN_FDS LISTEN_FDNAMES].freeze
      # By our predecessor, likewise.
      INHERITED = [InheritedSockets::VARIABLE, OwnRestarts::VARIABLE].freeze
      # What a process beside the main one must not do in its name.
      OF_MAIN_PROCESS = %w[NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID].freeze

      # @param argv [Array<String>] arguments of the command line
      # @param program [String] path of the script
      def initialize(argv, program: $PROGRAM_NAME)
        @directory = directory
        @environment = ENV.to_h.except(*ONE_TIME, *INHERITED)
        @command = [RbConfig.ruby, *load_path, File.expand_path(program), *argv]
      end

      # Replaces this process by a new start of the program.
      #
      # @param sockets [Hash{String=>IO}] listening sockets by bind
      # @param environment [Hash{String=>String}] further variables
      # @return [void] never
      # @raise [SystemCallError] when the program cannot be started
      def exec(sockets, environment: {})
        environment = @environment.merge(InheritedSockets.to_env(sockets), environment)
        Process.exec(environment, *@command, unsetenv_others: true, chdir: @directory, **kept(sockets.values))
      end

      # Starts the program beside this process.
      #
      # @param sockets [Hash{String=>IO}] listening sockets by bind
      # @param ios [Array<IO>] further descriptors to hand on under their number
      # @param environment [Hash{String=>String}] further variables
      # @return [Integer] process id
      # @raise [SystemCallError] when the program cannot be started
      def spawn(sockets, ios:, environment:)
        variables = @environment.except(*OF_MAIN_PROCESS)
        variables = variables.merge(InheritedSockets.to_env(sockets), environment)
        Process.spawn(variables, *@command, unsetenv_others: true, chdir: @directory, **kept(sockets.values + ios))
      end

      private

      # With the symbolic link kept as it was typed: a deployment that moves the
      # link is meant to be found under its new target.
      def directory
        shell = ENV.fetch("PWD", nil)
        shell && File.identical?(shell, Dir.pwd) ? shell : Dir.pwd
      rescue SystemCallError
        Dir.pwd
      end

      # Run from a checkout, the library is not found without being told.
      def load_path
        Gem.loaded_specs.key?("chaton") ? [] : ["-I", File.expand_path("../..", __dir__)]
      end

      def kept(ios)
        ios.to_h { |io| [io.fileno, io.fileno] }
      end
    end
  end
end
