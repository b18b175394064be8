# frozen_string_literal: true

require_relative "../memory/launch"
require_relative "../ruby_release"
require_relative "command"
require_relative "restart_arguments"

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
  end
end
