# frozen_string_literal: true

require_relative "workload"
require_relative "workload/code"
require_relative "worker/drain"
require_relative "worker/forked_child"
require_relative "worker/hooks"
require_relative "worker/signal_queue"
require_relative "telemetry/backtraces"
require_relative "telemetry/redirect"
require_relative "telemetry/title"

module Chaton
  # Runs in a forked worker process: starts the workload, reports ready, waits for a signal, drains and exits.
  #
  # | signal | meaning |
  # |---|---|
  # | TERM | drain within shutdown_timeout, exit |
  # | QUIT | exit at once; the log shows what every thread was doing |
  # | USR1 | quiet: stop accepting, keep serving open connections; fetch no more work |
  # | TSTP | fetch no more work (with the role jobs or streams, as in Sidekiq and Karafka) |
  # | HUP | reopen redirected output files; read certificates again |
  # | INT, USR2, TTIN, TTOU | handled by the supervisor, ignored here |
  class Worker
    SIGNALS = %w[TERM QUIT USR1 HUP].freeze
    IGNORED = %w[INT USR2 TTIN TTOU].freeze
    # Its default action stops a process, and a terminal's Ctrl-Z sends it to the whole process group.
    TSTP = "TSTP"

    # Arguments of a worker from the process that forks it.
    #
    # `app` is the application if the code was loaded before the fork (`loaded`); `memory` is a
    # {Supervisor::SharedMemory}; `workload` is the class that serves, replaced in tests.
    ForkContext = Struct.new(:plan, :loaded, :app, :sockets, :memory, :log, :workload, keyword_init: true)

    # Runs a worker and ends the process with it; never returns.
    #
    # @param identity [Hash] see {#initialize}
    def self.live(context, **identity)
      worker = new(context, **identity)
      status = worker.run
      # A normal exit would wait for the threads that did not finish in time.
      worker.complete? ? exit(status) : exit!(status)
    end

    # @param index [Integer] number of the worker
    # @param scoreboard_slot [Integer] its row in the shared memory
    # @param generation [Integer] number of the code version it runs
    # @param channel [UNIXSocket] its end of the channel to the supervisor
    # @param inherited [SignalQueue, nil] the queue of the process that forked
    def initialize(context, index:, scoreboard_slot:, generation:, channel:, inherited: nil)
      @roles = context.plan.roles_of(index)
      @plan = context.plan.of_process(@roles)
      handled, ignored = fetches_work? ? [[*SIGNALS, TSTP], IGNORED] : [SIGNALS, [*IGNORED, TSTP]]
      @signals = SignalQueue.new(handled, ignored: ignored, inherited: inherited)
      ForkedChild.prepare([*handled, *ignored]) do
        @signals.close
        @workload&.close_in_child
        close_sockets
      end
      # Ruby's own handler reaps the children of system() and IO.popen.
      trap("CHLD", "DEFAULT")
      @context = context
      @log = context.log
      @index = index
      @scoreboard_slot = scoreboard_slot
      @channel = channel
      @hooks = Hooks.new(@plan.hooks, log: @log)
      @complete = true
      Telemetry::Title.worker(index: index, roles: @roles, generation: generation, tag: @plan.tag)
    end

    # @return [Integer] exit status: 0 after a requested stop, 1 when the boot failed
    def run
      return 1 unless boot

      deadline_s = serve
      close_sockets
      @complete = drain(deadline_s)
      @hooks.run_all(:on_worker_shutdown, @index)
      0
    end

    # @return [Boolean] whether all work was finished
    def complete? = @complete

    private

    def fetches_work? = @roles.intersect?(%i[jobs streams])

    # @return [Boolean] whether it is ready
    def boot
      @hooks.run(:on_worker_boot, @index)
      app = @context.loaded ? @context.app : Workload::Code.load(@plan, @roles, log: @log)
      @workload = workload(app)
      @workload.on_orphan { orphaned }
      @workload.start { @channel.write("+") }
      true
    rescue ScriptError, StandardError, NoMemoryError, SystemStackError => e
      report_failed_boot(e)
      false
    end

    def workload(app)
      memory = @context.memory
      context = Workload::ProcessContext.new(roles: @roles, index: @index, scoreboard: memory&.scoreboard,
                                             slot: @scoreboard_slot, in_flight_table: memory&.in_flight_table,
                                             batch_table: memory&.batch_table, death_table: memory&.death_table,
                                             channel: @channel)
      (@context.workload || Workload).new(@plan, app: app, sockets: @context.sockets, context: context, log: @log)
    end

    # @return [Numeric] seconds that running work may take
    def serve
      loop do
        @signals.io.wait_readable
        @signals.take.each do |name|
          case name
          when "TERM" then return @plan.shutdown_timeout_s
          when "QUIT" then return 0
          when "USR1" then @workload.quiet
          when TSTP then @workload.quiet_intake
          when "HUP" then hang_up
          end
        end
      end
    end

    # Serves on if a file cannot be opened.
    def hang_up
      @workload.reload_certificates
      Telemetry::Redirect.of(@plan.stdout_redirect).reopen
    rescue SystemCallError => e
      @log.exception(e, "an output file cannot be reopened; output goes on into the old file", worker: @index)
    end

    # The engine has its own copies.
    def close_sockets = @context.sockets.each(&:close)

    # @return [Boolean] whether all work was finished
    def drain(deadline_s)
      drain = Drain.new(@workload, deadline_s)
      until drain.over?
        IO.select([drain.io, @signals.io])
        next unless @signals.take.include?("QUIT")

        Telemetry::Backtraces.write(@log, "immediate stop")
        return false
      end
      drain.complete?
    end

    # Called on a thread of the workload.
    def orphaned
      @log.warn("the supervisor has gone; this worker finishes its running work and exits", worker: @index)
      @context.memory.scoreboard.note_orphaned(@scoreboard_slot)
      @signals.push("TERM")
    end

    def report_failed_boot(error)
      case error
      # A hook's failure is logged by Hooks.
      when Hooks::Failed then nil
      # The sentence names the store and the next step; a backtrace adds nothing.
      when StoreError, StreamError then @log.error("worker cannot boot: #{error.message}", worker: @index)
      when AppLoadError then Workload::LoadFailure.log(@log, error, "worker cannot boot", worker: @index)
      else @log.exception(error, "worker cannot boot", worker: @index)
      end
      @channel.write("!#{error.message.lines.first.to_s.chomp} (#{error.class})")
    rescue SystemCallError
      nil
    end
  end
end
