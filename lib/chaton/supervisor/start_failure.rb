# frozen_string_literal: true

require_relative "../errors"
require_relative "../workload/load_failure"

module Chaton
  class Supervisor
    # Logs why a server, or new code, did not start, and turns it into an exit status.
    module StartFailure
      module_function

      # @param logs [Array<Telemetry::Log>] see {ProcessResources#fatal_logs}
      # @param what [String] what failed
      def report(logs, error, what = "cannot start")
        case error
        when SignalException
          logs.first.info("stopped while starting", signal: error.message)
          # The status that a shell reports for a process that a signal ended.
          return 128 + error.signo
        when AppLoadError then logs.each { |log| Workload::LoadFailure.log(log, error, what) }
        else logs.each { |log| log.error("#{what}: #{error.message}") }
        end
        1
      end
    end
  end
end
