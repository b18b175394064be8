# frozen_string_literal: true

require "fileutils"
require_relative "../errors"

module Chaton
  class Supervisor
    # The file that names the main process. Removed at the end, by the process
    # that wrote it and only while it still names that process.
    class Pidfile
      # @param path [String]
      # @param log [Telemetry::Log]
      def initialize(path, log:)
        @path = path
        @log = log
        @owner = nil
      end

      # @return [void]
      # @raise [Chaton::Error] when a running server owns it
      def write
        refuse_running
        FileUtils.mkdir_p(File.dirname(@path))
        # Whole or not at all: a reader must never see an empty file.
        draft = "#{@path}.#{Process.pid}"
        File.write(draft, "#{Process.pid}\n")
        File.rename(draft, @path)
        @owner = Process.pid
      rescue SystemCallError => e
        raise Chaton::Error, "pidfile #{@path} cannot be written: #{e.message}; choose another path"
      end

      # @return [void]
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
        return @log.info("stale pidfile replaced", path: @path, pid: pid) unless chaton?(pid)

        raise Chaton::Error, "pidfile #{@path} belongs to the running process #{pid}; " \
                             "stop it (kill -TERM #{pid}) or choose another pidfile"
      end

      # After a crash the number may have gone to somebody else.
      def chaton?(pid)
        File.binread("/proc/#{pid}/cmdline").include?("chaton")
      rescue Errno::ENOENT
        File.directory?("/proc/self") ? false : alive?(pid)
      rescue SystemCallError
        alive?(pid)
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
