# frozen_string_literal: true

require_relative "../config/options"
require_relative "../memory/launch"
require_relative "../ruby_release"
require_relative "command"

module Chaton
  class CLI
    # chaton [serve] [config.ru]: runs the server until it is asked to stop.
    class Serve < Command
      def run
        NativeLibrary.new.check
        launch = Memory::Launch.new(@argv)
        typed_in = Config::Loader.working_directory
        plan = load_plan
        require_rackup(plan)
        enter(plan)
        argv = RestartArguments.from(@argv, @arguments.given, plan: plan, typed_in: typed_in)
        log = log(plan)
        launch.go(plan, log)
        plan.notes.each { |note| log.info(note) }
        [*plan.warnings, *RubyRelease.warnings].each { |warning| log.warn(warning) }
        server(plan, argv, log).run
      end

      private

      def log(plan)
        require_relative "../telemetry/log"
        Telemetry::Log.of(plan, io: @out)
      end

      def server(plan, argv, log)
        if plan.workers.positive?
          require_relative "../supervisor"
          Supervisor.new(plan, argv: argv, log: log)
        else
          require_relative "../single"
          Single.new(plan, argv: argv, log: log)
        end
      end
    end

    # The arguments that a restart repeats in the application's directory. If the command was typed in another
    # directory, relative paths and the configuration file would not be found there, so the arguments are adapted.
    module RestartArguments
      # @param argv [Array<String>] as typed
      # @param given [Hash{Symbol=>Object}] the same, by option
      # @param typed_in [String] directory
      def self.from(argv, given, plan:, typed_in:)
        return argv if typed_in == plan.root

        options = { **given.except(:rackup), config_file: plan.config_file || Config::Loader::NO_FILE }
        ["serve", *options.flat_map { |name, value| Config::Options[name].arguments(value) }, *given[:rackup]]
      end
    end
  end
end
