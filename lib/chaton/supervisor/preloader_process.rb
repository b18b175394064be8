# frozen_string_literal: true

require "json"
require "socket"
require_relative "../boot_signals"
require_relative "../errors"
require_relative "../telemetry/title"
require_relative "../worker"
require_relative "../worker/hooks"
require_relative "application_loader"
require_relative "listeners"
require_relative "preloader"
require_relative "shared_memory"
require_relative "worker_report"

module Chaton
  class Supervisor
    # Runs inside a preloader: loads the code, reports it, then forks a worker for each message until the supervisor
    # closes the socket. {Preloader} documents the protocol. It has no engine, no thread and no event loop.
    class PreloaderProcess
      # @return [Boolean] whether this process was started as a preloader
      def self.requested? = ENV.key?(Preloader::VARIABLE)

      # @param plan [Chaton::Config::Plan] the new one
      def initialize(plan, log:)
        @log = log
        settings = JSON.parse(ENV.delete(Preloader::VARIABLE), symbolize_names: true)
        @plan = settings.fetch(:compact) ? plan : without_compaction(plan)
        @version = settings[:version]
        @generation = settings.fetch(:generation)
        @socket = UNIXSocket.for_fd(settings.fetch(:socket))
        @socket.close_on_exec = true
        @descriptors = settings.fetch(:memory)
      end

      # @return [Integer] exit status
      def run
        Telemetry::Title.preloader(generation: @generation, tag: @plan.tag)
        # The supervisor handles the terminal's Ctrl-C.
        trap("INT", "IGNORE")
        trap("TERM") { exit!(0) }
        free_children
        @context = context
        Worker::Hooks.new(@plan.hooks, log: @log).run(:before_fork)
        report(loaded: true)
        serve
        0
      rescue Chaton::Error => e
        refuse(e.message)
      end

      # Reports that there will be no new generation.
      #
      # @return [Integer] exit status
      def refuse(reason)
        @log.error("preloader cannot serve", generation: @generation, reason: reason)
        report(failed: reason)
        1
      end

      private

      # Of the children that hooks and the application fork from this process.
      def free_children
        Worker::ForkedChild.prepare([*BootSignals::NAMES, "INT", "TERM"]) do
          @socket.close
          @listeners&.close
        end
      end

      def without_compaction(plan) = plan.with(memory: plan.memory.dup.tap { |memory| memory.compact = false })

      # Messages between the supervisor and its workers, like the shared memory, are those of one version.
      def check_version
        return if @version == VERSION

        raise ConfigError, "the new code has Chaton #{VERSION} and the running server #{@version}; " \
                           "restart the server in full (SIGUSR2, `chaton restart --full`)"
      end

      def context
        check_version
        raise ConfigError, "preload is off in the new configuration; restart in full (SIGUSR2)" unless @plan.preload?

        @listeners = Listeners.new(@plan.binds, log: @log)
        @listeners.inherit
        Worker::ForkContext.new(plan: @plan, loaded: true, app: ApplicationLoader.new(@plan, log: @log).load,
                                sockets: @listeners.sockets.values, memory: SharedMemory.open(**@descriptors),
                                log: @log)
      end

      # Returns when the supervisor has ended, which closes its end of the socket.
      def serve
        loop do
          bytes, _address, _flags, *controls = @socket.recvmsg(Preloader::MESSAGE_BYTES_MAX, scm_rights: true)
          return if bytes.nil? || bytes.empty?

          message = JSON.parse(bytes, symbolize_names: true)
          next @listeners.reload_certificates if message[:certificates]

          channel = controls.flat_map { |control| control.unix_rights || [] }.first
          fork_twice(message, channel)
          channel&.close
        end
      end

      # The process in between reports the worker's pid and exits; then the kernel makes the worker a child of the
      # supervisor. The supervisor gets the report before it can learn of the worker's death, because an orphan is
      # handed over only when the process in between has gone. A process in between that was killed has not
      # reported.
      def fork_twice(message, channel)
        # The kernel drops a descriptor for which the process has no number left.
        raise Errno::EMFILE unless channel

        between = Worker::ForkedChild.ours { fork { fork_and_report(message, channel) } }
        _, status = Process.wait2(between)
        refuse_fork(message, "its parent ended (#{WorkerReport.describe(status)})") unless status.success?
      rescue SystemCallError => e
        refuse_fork(message, e.message)
      end

      # Never returns: the handlers that the application registered with at_exit are not for this process.
      def fork_and_report(message, channel)
        pid = Worker::ForkedChild.ours { fork { live(message, channel) } }
        report(forked: message.fetch(:fork), pid: pid)
        exit!(0)
      rescue SystemCallError => e
        refuse_fork(message, e.message)
        exit!(0)
      end

      def refuse_fork(message, reason) = report(refused: message.fetch(:fork), reason: reason)

      def live(message, channel)
        @socket.close
        channel.autoclose = false
        Worker.live(@context, **message.slice(:index, :scoreboard_slot), generation: @generation,
                                                                         channel: UNIXSocket.for_fd(channel.fileno))
      end

      def report(**message)
        @socket.sendmsg(JSON.generate(message))
      rescue SystemCallError
        # The supervisor has ended; the closed socket ends this process too.
        nil
      end
    end
  end
end
