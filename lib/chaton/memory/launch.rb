# frozen_string_literal: true

require "rbconfig"
require_relative "environment"
require_relative "provision"

module Chaton
  module Memory
    # Gives the process allocator and heap: both are read when a process begins, so it executes itself once more,
    # under the same pid and with the same descriptors, and then goes on with the variables put back.
    class Launch
      # Arguments a process was started with; wrong once its title was changed.
      COMMAND_LINE = "/proc/self/cmdline"

      # @param plan [Config::Plan]
      # @return [String, nil] why a server with this plan does not do it
      def self.refusal(plan)
        "one process in development is not executed anew" if plan.workers.zero? && plan.development?
      end

      # Made before anything else reads the environment.
      #
      # @param argv [Array<String>] arguments of the program
      # @param program [String] path of the script
      # @param env [ENV, Hash{String=>String}] is put back to what the user set
      # @param exec [#call] replaces the process
      def initialize(argv, program: $PROGRAM_NAME, env: ENV, exec: Process.method(:exec))
        @said = Environment.arrive(env)
        @environment = env.to_h.dup
        @directory = Dir.pwd
        @program = program
        @argv = argv
        @exec = exec
      end

      # @return [Boolean] whether the process has executed itself already
      def arrived? = !@said.nil?

      # Executes the process anew where that changes anything, else returns.
      #
      # @param plan [Config::Plan]
      # @param log [Telemetry::Log]
      # @return [void]
      def go(plan, log)
        return tell(@said, log) if arrived?
        refusal = Launch.refusal(plan) || unknown_program
        return log.info("allocator and heap stay as they are: #{refusal}") if refusal

        provision = Provision.new(plan.memory, cache: HeapCache.of(plan, env: @environment), env: @environment)
        return tell(provision.said, log) if provision.variables.empty?

        replace(provision, log)
      end

      private

      def unknown_program
        "#{@program} is no file that could be started again" unless File.file?(File.expand_path(@program, @directory))
      end

      # A system may forbid it; the server is worth more than its allocator.
      def replace(provision, log)
        environment = Environment.changed(@environment, provision.variables, [provision.allocator.path, provision.said])
        here = Dir.pwd
        [$stdout, $stderr].each(&:flush)
        @exec.call(environment, *command, unsetenv_others: true, close_others: false, chdir: @directory)
      rescue SystemCallError, JSON::GeneratorError, EncodingError => e
        # Ruby puts back the environment when it cannot execute, and not the directory.
        Dir.chdir(here)
        log.warn("the process cannot execute itself anew; allocator and heap stay as they are", reason: e.message)
      end

      def tell(said, log)
        said = said_before(said, log) if arrived?
        said.each { |level, message, fields| log.public_send(level, message, **fields.transform_keys(&:to_sym)) }
      end

      # @return [Array] the lines, but for an allocator that is not there after all
      def said_before(said, log)
        path, lines = said
        return lines if path.nil? || File.binread("/proc/self/maps").include?(File.realpath(path).b)

        log.warn("#{path} was preloaded, and is not in this process: the C library allocates")
        lines.drop(1)
      rescue SystemCallError
        lines
      end

      # As it was typed where the kernel still knows it: Ruby's own arguments are in it.
      def command
        typed = File.binread(COMMAND_LINE).split("\0").map { |word| word.dup.force_encoding(Encoding.default_external) }
        split = typed.size - @argv.size
        known = split > 1 && typed[split - 1] == @program && typed.drop(split) == @argv
        known ? [RbConfig.ruby, *typed.drop(1)] : by_ourselves
      rescue SystemCallError
        by_ourselves
      end

      # Under `bundle exec` the title has changed; its variables are all that is needed. Run from a checkout, the
      # library is not found without being told.
      def by_ourselves
        path = Gem.loaded_specs.key?("chaton") ? [] : ["-I", File.expand_path("../..", __dir__)]
        [RbConfig.ruby, *path, File.expand_path(@program, @directory), *@argv]
      end
    end
  end
end
