# frozen_string_literal: true

require_relative "command"
require_relative "restart_arguments"

module Chaton
  class CLI
    # chaton [serve] [config.ru]: runs until it is told to stop.
    class Serve < Command
      # @return [Integer] exit status
      def run
        typed_in = Config::Loader.working_directory
        plan = load_plan
        require_rackup(plan)
        enter(plan)
        argv = RestartArguments.from(@argv, @arguments.given, plan: plan, typed_in: typed_in)
        server(plan, argv).run
      end

      private

      def server(plan, argv)
        require_relative "../telemetry/log"
        log = Telemetry::Log.new(format: plan.log_format, level: plan.log_level, io: @out)
        plan.notes.each { |note| log.info(note) }
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
