# frozen_string_literal: true

require_relative "fleet_report"

module Chaton
  class Supervisor
    # Collects the processes that have ended. A subreaper (and a process with
    # pid 1) also inherits orphans of its workers: those are collected silently.
    class Reaper
      # @param fleet [Fleet]
      # @param origins [Origins]
      def initialize(fleet, origins)
        @fleet = fleet
        @origins = origins
      end

      # @return [void]
      def call
        @origins.read_all
        while (pid, status = Process.wait2(-1, Process::WNOHANG))
          @fleet.ended(pid, status) || @origins.ended(pid, FleetReport.describe(status))
        end
      rescue Errno::ECHILD
        nil
      end
    end
  end
end
