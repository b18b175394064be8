# frozen_string_literal: true

require "tempfile"

module Bench
  module Jobs
    # Counts the threads that a process creates, by a tracepoint of the kernel, where perf is installed and permitted.
    class CreatedThreads
      EVENT = "task:task_newtask"
      # perf does not report when it has attached.
      ATTACH_S = 0.5

      # @param pid [Integer]
      def initialize(pid)
        @report = Tempfile.new("created_threads")
        @perf = Process.spawn("perf", "stat", "-x,", "-e", EVENT, "-o", @report.path, "-p", pid.to_s,
                              out: File::NULL, err: File::NULL, pgroup: true)
        sleep ATTACH_S
      rescue Errno::ENOENT
        @perf = nil
      end

      # Stops counting.
      # @return [Integer, nil] nil without perf
      def count
        return unless @perf
        Process.kill(:INT, @perf) unless Process.wait(@perf, Process::WNOHANG)
        Process.wait(@perf)
        read
      rescue Errno::ECHILD
        read
      end

      private

      def read = @report.read[/^(\d+),.*#{EVENT}/, 1]&.to_i
    end
  end
end
