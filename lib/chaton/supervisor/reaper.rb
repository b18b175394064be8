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
          how = WorkerReport.describe(status)
          @worker_set.ended(pid, status) || @forkers.ended(pid, how) || @services.ended(pid, how) ||
            @admin.ended(pid, how)
        end
      rescue Errno::ECHILD
        nil
      end
    end
  end
end
