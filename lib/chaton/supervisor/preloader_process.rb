# frozen_string_literal: true

require "json"
require "socket"
require_relative "../boot_signals"
require_relative "../errors"
require_relative "../memory/eden"
require_relative "../memory/settle"
require_relative "../rails/active_record_pool"
require_relative "../rails/notifications"
require_relative "../telemetry/redirect"
require_relative "../telemetry/title"
require_relative "../worker"
require_relative "../worker/hooks"
require_relative "../workload/code"
require_relative "listeners"
require_relative "preloader"
require_relative "shared_memory"
require_relative "start_failure"
require_relative "worker_report"

module Chaton
  class Supervisor
    # Runs inside a preloader: loads the code, reports it, then forks a worker for each message until the supervisor
    # closes the socket. {Preloader} documents the protocol. It has no engine, no thread and no event loop.
    class PreloaderProcess
      class << self
        # The preloader in a fresh process.
        #
        # @param plan [Chaton::Config::Plan] the new one
        def fresh(plan, log:)
          settings = JSON.parse(ENV.delete(Preloader::VARIABLE), symbolize_names: true)
          plan = without_compaction(plan) unless settings.fetch(:compact)
          socket = UNIXSocket.for_fd(settings.fetch(:socket))
          socket.close_on_exec = true
          new(plan, generation: settings.fetch(:generation), socket: socket, logs: [log]) do
            check(settings[:version], plan)
            [Listeners.new(plan.binds, log: log).tap(&:inherit), SharedMemory.open(**settings.fetch(:memory))]
          end
        end

        private

        def without_compaction(plan) = plan.with(memory: plan.memory.dup.tap { |memory| memory.compact = false })

        # Messages between the supervisor and its workers, like the shared memory, are those of one version.
        def check(version, plan)
          if version != VERSION
            raise ConfigError, "the new code has Chaton #{VERSION} and the running server #{version}; " \
                               "restart the server in full (SIGUSR2, `chaton restart --full`)"
          end
          raise ConfigError, "preload is off in the new configuration; restart in full (SIGUSR2)" unless plan.preload?
        end
      end

      # @param generation [Integer] 0 for the code loaded at boot
      # @param socket [UNIXSocket] to the supervisor
      # @param logs [Array<Telemetry::Log>] where it is reported that the code cannot be loaded; the first gets the rest
      # @yieldreturn [Array(Listeners, SharedMemory)] what the workers get from the supervisor
      def initialize(plan, generation:, socket:, logs:, &inherited)
        @plan = plan
        @generation = generation
        @socket = socket
        @log = logs.first
        @logs = logs
        @inherited = inherited
      end

      # @param forget [Proc, nil] in the first preloader: closes what is needed only until the code is loaded
      def run(&forget)
        @forget = forget
        Telemetry::Title.preloader(generation: @generation, tag: @plan.tag)
        # The supervisor handles the terminal's Ctrl-C. A program that is started here does not inherit a block.
        trap("INT") { nil }
        free_children
        @context = context
        Worker::Hooks.new(@plan.hooks, log: @log).run(:before_fork)
        forget&.call
        ignore_stops
        report(loaded: true, pool: ActiveRecordPool.size)
        serve
        0
      rescue Chaton::Error => e
        refuse(e)
      end

      # Reports that there will be no workers with this code.
      def refuse(error)
        what = @forget ? "cannot start" : "the new code cannot serve"
        report(failed: error.message)
        StartFailure.report(@logs, error, what)
      end

      private

      # Of the children that hooks and the application fork from this process.
      def free_children
        Worker::ForkedChild.prepare([*BootSignals::NAMES, "INT", "TERM", "QUIT"]) do
          @socket.close
          @listeners&.close
          @forget&.call
        end
      end

      # A service manager may send TERM to all processes at once, and a terminal QUIT; the closed socket ends this one.
      # A worker that does not handle them yet has nothing to finish.
      def ignore_stops
        own = Process.pid
        %w[TERM QUIT].each { |name| trap(name) { exit!(0) unless Process.pid == own } }
      end

      def context
        @listeners, memory = @inherited.call
        sockets = @listeners.sockets.values
        Worker::ForkContext.new(plan: @plan, loaded: true, sockets: sockets, memory: memory, log: @log,
                                app: ApplicationLoader.new(@plan, log: @log).load(sockets))
      end

      # Returns when the supervisor has closed its end of the socket, or has ended.
      def serve
        loop do
          bytes, _address, _flags, *controls = @socket.recvmsg(Preloader::MESSAGE_BYTES_MAX, scm_rights: true)
          return if bytes.nil? || bytes.empty?

          message = JSON.parse(bytes, symbolize_names: true)
          next reload if message[:reload]
          next publish(message[:ended]) if message[:ended]

          channel = controls.flat_map { |control| control.unix_rights || [] }.first
          fork_twice(message, channel)
          channel&.close
        end
      end

      # For workers that are forked later.
      def reload
        @listeners.reload_certificates
        Telemetry::Redirect.of(@plan.stdout_redirect).reopen
      rescue SystemCallError => e
        @log.exception(e, "an output file cannot be reopened; new workers write to the old file")
      end

      def publish(payload)
        notifications = Notifications.of(@log)
        return unless notifications&.wanted?("restart.chaton")

        notifications.publish("restart.chaton", { **payload, roles: payload.fetch(:roles).map(&:to_sym) })
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

    # Loads the application once, before workers are forked from it.
    class ApplicationLoader
      def initialize(plan, log:)
        @plan = plan
        @log = log
      end

      # @param sockets [Array<TCPServer, UNIXServer>] on which workers will listen
      # @return [#call, nil] the application; nil where no worker serves web requests
      # @raise [AppLoadError] naming the file
      def load(sockets)
        app = Workload::Code.load(@plan, @plan.roles_by_worker.flatten.uniq, log: @log, forks: true)
        warm_up(app, sockets) if app
        Memory::Settle.new(@plan, log: @log).call
        # Once, where the workers would each do it.
        Memory::Eden.new(@plan, log: @log).grow
        warn_of_threads
        app
      end

      # Threads that a library starts again after a fork, or can do without, by their name or place: the reaper of
      # ActiveRecord's connection pool, which had no name before Rails 7, Timeout's, and one that frees what ended
      # threads kept.
      RESTARTED = Regexp.union(/\A(?:AR Pool Reaper|Timeout stdlib thread)/, "active_record/connection_adapters/",
                               "concurrent/atomic/ruby_thread_local_var")

      private

      # What requests fill is then shared by the workers, and there at once in each that is forked later.
      def warm_up(app, sockets)
        Workload::WebRole.new(@plan, app: app, sockets: sockets, context: nil, log: @log).warm_up
        ActiveRecordPool.disconnect(@log)
      end

      # A thread does not survive fork, but a lock that it holds stays locked.
      def warn_of_threads
        threads = Thread.list - [Thread.main]
        names = threads.map { |thread| thread.name || thread.inspect[%r{/\S+:\d+}] || thread.inspect }
        names.reject! { |name| RESTARTED.match?(name) }
        return if names.empty?

        @log.warn("loading the application left threads running, which will not exist in the workers; " \
                  "start them in on_worker_boot", threads: names.join(", "))
      end
    end
  end
end
