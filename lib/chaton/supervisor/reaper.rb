# frozen_string_literal: true

require_relative "event_loop"
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

    # Reaps the orphans that a server without workers inherits where it is the first process of a container: children of
    # programs that ended before them. Left alone they stay zombies and use up the container's pids. Children that the
    # application has started itself are left to it, because it may still ask for their status. A source of the event
    # loop.
    #
    # The kernel gives orphans to the main thread (find_new_reaper in kernel/exit.c) and lists the children of each
    # thread apart (proc_pid_children(5)). The main thread starts no process once the server serves, so what is new in
    # its list is an orphan, or was started by a thread that has ended; that one has until the second look to be waited
    # for.
    class OrphanReaper
      LOOK_EVERY_S = 10.0

      attr_reader :due_at

      # @param inherits [Boolean] whether orphans come to this process
      def initialize(inherits: Process.pid == 1)
        return unless inherits

        @due_at = EventLoop.now_s + LOOK_EVERY_S
        @dead = []
        @ours = children
      end

      def ios = []

      def tick(now_s)
        return unless @due_at && now_s >= @due_at

        @due_at = now_s + LOOK_EVERY_S
        there = children
        @ours &= there
        dead = (there - @ours).select { |pid| dead?(pid) }
        (dead & @dead).each { |pid| reap(pid) }
        @dead = dead
      end

      private

      def children
        File.read("/proc/self/task/#{Process.pid}/children").split.map(&:to_i)
      rescue SystemCallError
        # A kernel without CONFIG_PROC_CHILDREN.
        []
      end

      def dead?(pid)
        File.read("/proc/#{pid}/stat").rpartition(")").last.start_with?(" Z")
      rescue SystemCallError
        false
      end

      def reap(pid)
        Process.wait(pid, Process::WNOHANG)
      rescue Errno::ECHILD
        nil
      end
    end
  end
end
