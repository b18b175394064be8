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
        while (pid, status = dead_process)
          next if ended(pid, status)

          # A preloader may have forked it while the deaths before it were handled.
          @forkers.read_all
          @worker_set.ended(pid, status)
        end
      end

      private

      # Before Ruby 3.3 a wait for any child finds none while another thread waits for one, such as Process.detach of
      # a hook (waitpid_wait in process.c), but a wait for a certain one does.
      def dead_process
        wait(-1) || begin
          @forkers.read_all
          known = @worker_set.children.map(&:pid) + [@forkers, @services, @admin].flat_map(&:pids)
          known.compact.lazy.filter_map { |pid| wait(pid) }.first
        end
      end

      def wait(pid)
        Process.wait2(pid, Process::WNOHANG)
      rescue Errno::ECHILD
        nil
      end

      def ended(pid, status)
        how = WorkerReport.describe(status)
        @worker_set.ended(pid, status) || @forkers.ended(pid, how) || @services.ended(pid, how) ||
          @admin.ended(pid, how)
      end
    end
  end
end
