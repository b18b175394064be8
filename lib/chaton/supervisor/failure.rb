# frozen_string_literal: true

require_relative "../errors"

module Chaton
  class Supervisor
    # Why a server did not come up, in the log and as an exit status.
    module Failure
      module_function

      # @param log [Telemetry::Log]
      # @param error [Chaton::Error, SignalException]
      # @return [Integer] exit status
      def report(log, error)
        case error
        when SignalException
          log.info("stopped while starting", signal: error.message)
          # As a shell reports a process that a signal ended.
          128 + error.signo
        when AppLoadError
          # The application's own backtrace is what has to be read.
          log.exception(error, "cannot start")
          1
        else
          log.error("cannot start: #{error.message}")
          1
        end
      end
    end
  end
end
