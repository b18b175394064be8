# frozen_string_literal: true

require "rbconfig"
require_relative "../boot_signals"
require_relative "environment"
require_relative "launch_settings"

module Chaton
  module Memory
    # Gives the process its allocator and heap sizes. Both are read when a process starts, so it executes itself once
    # more, with the same pid and descriptors, and then restores the variables.
    class Launch
      # The arguments of this process, unless its title was changed.
      COMMAND_LINE = "/proc/self/cmdline"

      # @return [String, nil] why a server with this plan does not execute itself again
      def self.refusal(plan)
        "a single process in development is not executed again" if plan.workers.zero? && plan.development?
      end

      # Create it before anything else reads the environment.
      #
      # @param argv [Array<String>] arguments of the program
      # @param env [ENV, Hash{String=>String}] is restored to the user's values
      # @param exec [#call] replaces the process
      def initialize(argv, program: $PROGRAM_NAME, env: ENV, exec: Process.method(:exec))
        @notes = Environment.restore(env)
        @environment = env.to_h.dup
        @directory = Dir.pwd
        @program = program
        @argv = argv
        @exec = exec
      end

      # @return [Boolean] whether the process has already executed itself again
      def relaunched? = !@notes.nil?

      # Executes the process again if that changes anything, else returns.
      def go(plan, log)
        return write(lines_after_exec(log), log) if relaunched?
        refusal = Launch.refusal(plan) || unknown_program
        return log.debug("allocator and heap sizes are unchanged: #{refusal}") if refusal

        settings = LaunchSettings.of(plan, env: @environment, loads: !plan.preload?)
        return write(settings.log_lines, log) if settings.variables.empty?

        replace(settings, log)
      end

      private

      def unknown_program
        "#{@program} is not a file that can be executed again" unless File.file?(File.expand_path(@program, @directory))
      end

      # If the system forbids it, the server runs with what it has.
      def replace(settings, log)
        environment = Environment.changed(@environment, settings.variables,
                                          [settings.allocator.path, settings.log_lines])
        here = Dir.pwd
        [$stdout, $stderr].each(&:flush)
        BootSignals.ignore
        @exec.call(environment, *command, unsetenv_others: true, close_others: false, chdir: @directory)
      rescue SystemCallError, JSON::GeneratorError, EncodingError => e
        # After a failed exec Ruby restores the environment, but not the directory.
        Dir.chdir(here)
        BootSignals.hold
        log.warn("the process cannot execute itself again; allocator and heap sizes are unchanged", reason: e.message)
      end

      def write(lines, log)
        lines.each { |level, message, fields| log.public_send(level, message, **fields.transform_keys(&:to_sym)) }
      end

      # @return [Array] the lines from before exec, without the allocator's if it is not loaded
      def lines_after_exec(log)
        path, lines = @notes
        return lines if path.nil? || File.binread("/proc/self/maps").include?(File.realpath(path).b)

        log.warn("#{path} was preloaded, but is not loaded in this process: the C library's malloc is used")
        lines.drop(1)
      rescue SystemCallError
        lines
      end

      # From the kernel if it still has it, because that includes Ruby's own arguments.
      def command
        typed = File.binread(COMMAND_LINE).split("\0").map { |word| word.dup.force_encoding(Encoding.default_external) }
        split = typed.size - @argv.size
        known = split > 1 && typed[split - 1] == @program && typed.drop(split) == @argv
        known ? [RbConfig.ruby, *typed.drop(1)] : rebuilt_command
      rescue SystemCallError
        rebuilt_command
      end

      # Under `bundle exec`, which changes the title, its variables are enough. From a checkout the library's path is
      # needed.
      def rebuilt_command
        path = Gem.loaded_specs.key?("chaton") ? [] : ["-I", File.expand_path("../..", __dir__)]
        [RbConfig.ruby, *path, File.expand_path(@program, @directory), *@argv]
      end
    end
  end
end
