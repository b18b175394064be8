# frozen_string_literal: true

require_relative "../telemetry/backtraces"

module Chaton
  class Workload
    # Signals that were left for this process in the store, as the buttons of Sidekiq's web interface do. Called on the
    # support thread.
    class StoreSignals
      def initialize(workload, log:)
        @workload = workload
        @log = log
      end

      # @param name [String] without "SIG"
      def call(name)
        @log.info("a signal was left for this process in the store", signal: name)
        case name
        when "TSTP" then @workload.quiet_intake
        when "TTIN" then Telemetry::Backtraces.write(@log, "SIGTTIN")
        # The main thread handles it and drains.
        when "TERM", "INT" then Process.kill("TERM", Process.pid)
        else @log.warn("that signal means nothing here; known are TSTP, TERM and TTIN", signal: name)
        end
      end
    end
  end
end
