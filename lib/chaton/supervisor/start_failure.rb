# frozen_string_literal: true

require_relative "../errors"
require_relative "../service/load_failure"

module Chaton
  class Supervisor
    # Logs why a server did not start, and turns it into an exit status.
    module StartFailure
      module_function

      # @param error [Chaton::Error, SignalException]
      # @return [Integer] exit status
      def report(log, error)
        case error
        when SignalException
          log.info("stopped while starting", signal: error.message)
          # The status that a shell reports for a process that a signal ended.
          128 + error.signo
        when AppLoadError
          Service::LoadFailure.log(log, error, "cannot start")
          1
        else
          log.error("cannot start: #{error.message}")
          1
        end
      end
    end
  end
end
