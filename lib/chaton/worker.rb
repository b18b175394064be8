# frozen_string_literal: true

require_relative "service"
require_relative "service/code"
require_relative "worker/drain"
require_relative "worker/hooks"
require_relative "worker/signals"
require_relative "telemetry/backtraces"
require_relative "telemetry/redirect"
require_relative "telemetry/title"

module Chaton
  # What runs in a forked worker process: start the service, say ready, wait for
  # a signal, drain, leave.
  #
  # | signal | meaning |
  # |---|---|
  # | TERM | drain within shutdown_timeout, leave |
  # | QUIT | leave at once; the log shows what every thread was doing |
  # | USR1 | quiet: stop accepting, go on serving open connections; fetch no more work |
  # | TSTP | fetch no more work (with the role jobs or streams, as in Sidekiq and Karafka) |
  # | HUP | open redirected output files again |
  # | INT, USR2, TTIN, TTOU | the supervisor's business: ignored |
  class Worker
    SIGNALS = %w[TERM QUIT USR1 HUP].freeze
    IGNORED = %w[INT USR2 TTIN TTOU].freeze
    # Stops whatever does not know it; a terminal's Ctrl-Z sends it to all.
    TSTP = "TSTP"

    # What all workers of a generation share.
    #
    # `app` is the application where the code was loaded before the fork (`loaded`); `ledger` is nil without the
    # role jobs; `service` is the class that serves, replaced in tests.
    Kit = Struct.new(:plan, :loaded, :app, :sockets, :board, :ledger, :log, :service, keyword_init: true)

    # Runs a worker and ends the process with it.
    #
    # @param kit [Kit]
    # @param place [Hash] see {#initialize}
    # @return [void] never
    def self.live(kit, **place)
      worker = new(kit, **place)
      status = worker.run
      # Threads that did not finish in time would be waited for by a normal exit.
      worker.complete? ? exit(status) : exit!(status)
    end

    # @param kit [Kit]
    # @param index [Integer] number of the worker
    # @param slot [Integer] its place on the board
    # @param generation [Integer]
    # @param leash [UNIXSocket] its end of the leash
    # @param inherited [Signals, nil] those of the process that forked
    def initialize(kit, index:, slot:, generation:, leash:, inherited: nil)
      @roles = kit.plan.roles_of(index)
      @plan = kit.plan.of_process(@roles)
      taken, ignored = intake? ? [[*SIGNALS, TSTP], IGNORED] : [SIGNALS, [*IGNORED, TSTP]]
      @signals = Signals.new(taken, ignored: ignored, inherited: inherited)
      # Ruby's own handler reaps what system() and IO.popen start.
      trap("CHLD", "DEFAULT")
      @kit = kit
      @log = kit.log
      @index = index
      @slot = slot
      @leash = leash
      @hooks = Hooks.new(@plan.hooks, log: @log)
      @complete = true
      Telemetry::Title.worker(index: index, roles: @roles, generation: generation, tag: @plan.tag)
    end

    # @return [Integer] exit status: 0 when it was asked to leave, 1 when it
    #   could not boot
    def run
      return 1 unless boot

      deadline_s = serve
      @complete = drain(deadline_s)
      @hooks.run_all(:on_worker_shutdown, @index)
      0
    end

    # @return [Boolean] whether all work was finished
    def complete?
      @complete
    end

    private

    # Whether it fetches work by itself, which it can be told to leave.
    def intake? = @roles.intersect?(%i[jobs streams])

    # @return [Boolean]
    def boot
      @hooks.run(:on_worker_boot, @index)
      app = @kit.loaded ? @kit.app : Service::Code.load(@plan, @roles, log: @log)
      @service = (@kit.service || Service).new(@plan, app: app, sockets: @kit.sockets, board: @kit.board, slot: @slot,
                                                      leash: @leash, log: @log, duty: duty)
      @service.on_orphan { orphaned }
      @service.start
      @leash.write("+")
      true
    rescue ScriptError, StandardError, NoMemoryError, SystemStackError => e
      explain(e)
      false
    end

    def duty = Service::Duty.new(roles: @roles, ledger: @kit.ledger, index: @index)

    # @return [Numeric] how long running work may take
    def serve
      loop do
        @signals.io.wait_readable
        @signals.take.each do |name|
          case name
          when "TERM" then return @plan.shutdown_timeout_s
          when "QUIT" then return 0
          when "USR1" then @service.quiet
          when TSTP then @service.quiet_intake
          when "HUP" then reopen_output
          end
        end
      end
    end

    # A file that cannot be opened is no reason to stop serving.
    def reopen_output
      Telemetry::Redirect.of(@plan.stdout_redirect).reopen
    rescue SystemCallError => e
      @log.exception(e, "output goes on into the old file", worker: @index)
    end

    # @return [Boolean] whether all work was finished
    def drain(deadline_s)
      drain = Drain.new(@service, deadline_s)
      until drain.over?
        IO.select([drain.io, @signals.io])
        next unless @signals.take.include?("QUIT")

        Telemetry::Backtraces.write(@log, "immediate stop")
        return false
      end
      drain.complete?
    end

    # Called on a thread of the service.
    def orphaned
      @log.warn("the supervisor has gone; this worker finishes what it runs and leaves", worker: @index)
      @signals.push("TERM")
    end

    def explain(error)
      case error
      # A hook's failure is logged where it happened.
      when Hooks::Failed then nil
      # The sentence says all; where we were when the store refused helps nobody.
      when StoreError, LogError then @log.error("worker cannot boot: #{error.message}", worker: @index)
      else @log.exception(error, "worker cannot boot", worker: @index)
      end
      @leash.write("!#{error.message.lines.first.to_s.chomp} (#{error.class})")
    rescue SystemCallError
      nil
    end
  end
end
