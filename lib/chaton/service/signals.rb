# frozen_string_literal: true

require_relative "../telemetry/backtraces"

module Chaton
  class Service
    # Signals that somebody left for this process in the store, as the buttons of Sidekiq's web interface do.
    class Signals
      # @param service [Service]
      # @param log [Telemetry::Log]
      def initialize(service, log:)
        @service = service
        @log = log
      end

      # Called on the support thread.
      #
      # @param name [String] without "SIG"
      # @return [void]
      def call(name)
        @log.info("a signal was left for this process in the store", signal: name)
        case name
        when "TSTP" then @service.quiet_intake
        when "TTIN" then Telemetry::Backtraces.write(@log, "SIGTTIN")
        # Heard by the main thread, which drains.
        when "TERM", "INT" then Process.kill("TERM", Process.pid)
        else @log.warn("that signal means nothing here; known are TSTP, TERM and TTIN", signal: name)
        end
      end
    end
  end
end
