# frozen_string_literal: true

require "etc"
require "fileutils"
require_relative "../errors"

module Chaton
  class Supervisor
    # The file with the pid of the main process. The process that wrote it removes it at the end, if the file still
    # names that process.
    class Pidfile
      # btime has whole seconds, and moves with the clock of the machine.
      CLOCK_SLACK_S = 2

      def initialize(path, log:)
        @path = path
        @log = log
        @owner = nil
      end

      # @raise [Chaton::Error] when it belongs to a running server
      def write
        refuse_running
        FileUtils.mkdir_p(File.dirname(@path))
        # Renaming makes it appear whole: a reader must never see an empty file.
        temporary = "#{@path}.#{Process.pid}"
        File.write(temporary, "#{Process.pid}\n")
        File.rename(temporary, @path)
        @owner = Process.pid
      rescue SystemCallError => e
        raise Chaton::Error, "pidfile #{@path} cannot be written: #{e.message}; choose another path"
      end

      def remove
        File.unlink(@path) if @owner == Process.pid && recorded == Process.pid
      rescue Errno::ENOENT
        nil
      end

      private

      def recorded
        File.read(@path, 32).to_i
      rescue SystemCallError
        0
      end

      def refuse_running
        pid = recorded
        return unless pid.positive? && pid != Process.pid
        return @log.info("stale pidfile replaced", path: @path, pid: pid) unless chaton?(pid) && !younger?(pid)

        raise Chaton::Error, "pidfile #{@path} belongs to the running process #{pid}; " \
                             "stop it (kill -TERM #{pid}) or choose another pidfile"
      end

      # After a crash another process may have got the number.
      def chaton?(pid)
        program, *arguments = File.binread("/proc/#{pid}/cmdline").split("\0")
        # The title of a running server, or the command that starts one.
        program.to_s.start_with?("chaton") || [program.to_s, *arguments].any? { |one| File.basename(one) == "chaton" }
      rescue Errno::ENOENT
        File.directory?("/proc/self") ? false : alive?(pid)
      rescue SystemCallError
        alive?(pid)
      end

      # A process that started after the file was written has not written it. In a container the same numbers come again
      # after each start.
      def younger?(pid)
        booted_s = File.read("/proc/stat")[/^btime (\d+)/, 1].to_i
        ticks = File.read("/proc/#{pid}/stat").rpartition(")").last.split[19].to_i
        booted_s + (ticks.to_f / Etc.sysconf(Etc::SC_CLK_TCK)) > File.mtime(@path).to_f + CLOCK_SLACK_S
      rescue SystemCallError
        false
      end

      def alive?(pid)
        Process.kill(0, pid)
        true
      rescue Errno::ESRCH
        false
      rescue Errno::EPERM
        true
      end
    end
  end
end
