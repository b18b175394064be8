# frozen_string_literal: true

require_relative "../config"
require_relative "../config/nearest"
require_relative "commands"

module Chaton
  class CLI
    # The base of all commands: `run` returns the exit status.
    class Command
      # @return [Array<Config::Option>] options it takes
      def self.options = Config::Options.on_command_line

      # @return [Array<String>] further flags without a value
      def self.switches = []

      # @param argv [Array<String>] the whole command line, to start again with
      def initialize(arguments, argv:, out:, err:)
        @arguments = arguments
        @argv = argv
        @out = out
        @err = err
      end

      private

      # @raise [Config::Invalid]
      def load_plan
        take_rackup
        Config.load(@arguments.given, problems: @arguments.problems)
      end

      # At most one argument, and it is a file: chaton config.ru.
      def take_rackup
        file, *further = @arguments.rest
        @arguments.rest_problem("one argument too many: #{further.join(" ")}") unless further.empty?
        return if file.nil?
        # The path is relative to the current directory, even if the configuration names another one.
        return @arguments.given[:rackup] = File.expand_path(file, Config::Loader.working_directory) if File.exist?(file)

        nearest = Config::Nearest.to(file, Commands::ALL.keys + Dir["*.ru"])
        @arguments.rest_problem("#{file} is neither a command nor a file", nearest)
      end

      # Changes into the application's directory.
      def enter(plan)
        Dir.chdir(plan.root)
        ENV["PWD"] = plan.root
      rescue SystemCallError => e
        raise ConfigError, "the application's directory #{plan.root} cannot be entered: #{e.message.sub(/ @ .*/, "")}"
      end

      def require_rackup(plan)
        return if !plan.role?(:web) || File.file?(plan.rackup)

        raise AppLoadError, "there is no #{plan.rackup}; name the application's Rack file (chaton FILE) or start in " \
                            "its directory"
      end
    end
  end
end
