# frozen_string_literal: true

require_relative "worker_report"

module Chaton
  class Supervisor
    # Reaps the processes that have ended. A subreaper (and a process with pid 1) also inherits orphans of its workers;
    # those are reaped without a log line.
    class Reaper
      def initialize(worker_set, forkers, services, admin)
        @worker_set = worker_set
        @forkers = forkers
        @services = services
        @admin = admin
      end

      def call
        @forkers.read_all
        while (pid, status = Process.wait2(-1, Process::WNOHANG))
          next if ended(pid, status)

          # A preloader may have forked it while the deaths before it were handled.
          @forkers.read_all
          @worker_set.ended(pid, status)
        end
      rescue Errno::ECHILD
        nil
      end

      private

      def ended(pid, status)
        how = WorkerReport.describe(status)
        @worker_set.ended(pid, status) || @forkers.ended(pid, how) || @services.ended(pid, how) ||
          @admin.ended(pid, how)
      end
    end
  end
end
