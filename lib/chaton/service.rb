# frozen_string_literal: true

require_relative "native"
require_relative "pool"
require_relative "support_thread"
require_relative "active_record_pool"
require_relative "memory/collector"
require_relative "memory/tracer_control"
require_relative "service/orders"
require_relative "service/signals"
require_relative "service/web_side"
require_relative "streams"

module Chaton
  # Everything one worker process runs: the pool, the support thread, and an engine for each of its roles.
  # Start it only after the fork: it starts threads, in Rust and in Ruby.
  class Service
    # Time the worker has, beyond its graceful stop, before it leaves by force
    # when the supervisor is gone.
    ORPHAN_GRACE_S = 5.0
    # Time for pool threads to end once nothing waits any more.
    JOIN_S = 1.0

    # The class of {Native} that each role's work has; the extension may have been built without one of them.
    WORK_CLASSES = { jobs: :Job, streams: :Batch }.freeze

    # What a process does: its roles (:web, :jobs, :streams), the ledger where the jobs it starts are noted (nil where
    # no supervisor reads it), and its number among the workers.
    Duty = Struct.new(:roles, :ledger, :index, keyword_init: true)
    # Where its figures go: the board, and its place on board and ledger.
    Place = Struct.new(:slot, :board, :ledger, keyword_init: true)

    # @param plan [Config::Plan]
    # @param app [#call, nil] the Rack application; nil without the role web
    # @param sockets [Array<TCPServer, UNIXServer>] in the order of `plan.binds`
    # @param board [Native::Scoreboard]
    # @param slot [Integer] this worker's place on the board
    # @param leash [UNIXSocket, nil] the line to the supervisor
    # @param log [Telemetry::Log]
    # @param duty [Duty]
    def initialize(plan, app:, sockets:, board:, slot:, leash:, log:, duty: Duty.new(roles: [:web]))
      @plan = plan.of_process(duty.roles)
      @roles = duty.roles
      @index = duty.index || 0
      @app = app
      @sockets = sockets
      @place = Place.new(slot: slot, board: board, ledger: duty.ledger)
      @leash = leash
      @log = log
      @on_orphan = -> {}
    end

    # Sets what happens when the supervisor is gone. It is called on the
    # support thread.
    #
    # @return [void]
    def on_orphan(&block)
      @on_orphan = block
    end

    # Takes work from its return on.
    #
    # @return [self]
    def start
      @plan = @plan.with(threads_max: threads_max)
      @native_pool = Native::Pool.new(pool_settings, @place.board, @leash&.fileno)
      @memory = Memory::Collector.new(@plan, log: @log).start(@native_pool)
      @desk = Memory::TracerControl.new(@plan, worker: @index, log: @log)
      @sides = sides
      @pool = Pool.new(@native_pool, handler, log: @log)
      @support_thread = SupportThread.new(@native_pool, @pool, log: @log, on: reactions).start
      @native_pool.expect(@plan.threads_min)
      @pool.spawn(@plan.threads_min)
      # Whatever its roles: what was produced before the fork is for the first worker.
      Streams.started(log: @log) if @plan.streams
      @sides.each_value { |side| side.start(@native_pool) }
      @desk.start_if_configured
      self
    end

    # Takes no more work; what it has is finished.
    #
    # @return [void]
    def quiet
      @sides.each_value(&:quiet)
    end

    # The same for jobs and streams, without web.
    #
    # @return [void]
    def quiet_intake
      @sides.values_at(:jobs, :streams).compact.each(&:quiet)
    end

    # Drains and stops.
    #
    # @param deadline_s [Float]
    # @return [Boolean] false when work was given up at the deadline (what ran is then in the log, with backtraces), or
    #   when a pool thread has not ended, which a normal exit would wait for
    def stop(deadline_s)
      deadline = now_s + deadline_s
      quiet
      late = @sides.values.reject { |side| side.wait([deadline - now_s, 0.0].max) }
      unless late.empty?
        @support_thread.report_running("still running at the end of the graceful stop: released")
        late.each(&:give_up)
      end
      ended = shut
      late.empty? && ended
    end

    # A sibling died while it had jobs.
    #
    # @param line [String] JSON
    # @return [void]
    def recover(line)
      jobs = @sides[:jobs]
      jobs ? jobs.recover(line) : @log.warn("a line about a dead worker's jobs came to one without the role jobs")
    end

    # Does what the supervisor, or whoever controls a single process, wants; see {Orders}.
    #
    # @param line [String] JSON
    # @return [void]
    def order(line) = (@orders ||= Orders.new(memory: @memory, desk: @desk, log: @log)).call(line)

    # @return [Hash] what the worker does now; see `chaton status --json`
    def status
      stats = @native_pool.stats
      sides = @sides.each_value.map(&:status).reduce({}, :merge)
      { roles: @roles, queue: stats.slice(:waiting, :oldest_age_ms), pool: stats.except(:waiting, :oldest_age_ms),
        running: @native_pool.running, memory: @memory.status, **sides }
    end

    private

    def sides
      sides = {}
      sides[:web] = WebSide.new(@plan, app: @app, sockets: @sockets, place: @place, log: @log) if @roles.include?(:web)
      if @roles.include?(:jobs)
        # Not needed, and not loaded, where no jobs are run.
        require_relative "service/jobs_side"
        sides[:jobs] = JobsSide.new(@plan, place: @place, running: method(:running), log: @log)
      end
      if @roles.include?(:streams)
        require_relative "service/streams_side"
        sides[:streams] = StreamsSide.new(@plan, place: @place, index: @index, log: @log)
      end
      sides
    end

    # To what Rust has to say.
    def reactions
      { orphan: ->(_) { @on_orphan.call }, recover: method(:recover), signal: Signals.new(self, log: @log),
        order: method(:order), collections: @memory.method(:report), idle: @memory.method(:idle),
        full_wanted: @memory.method(:full) }
    end

    # What a pool thread does with a unit of work.
    def handler
      handlers = @sides.transform_values(&:handler)
      return handlers.values.first if handlers.size == 1

      web = handlers.delete(:web)
      by_class = handlers.transform_keys { |role| Native.const_get(WORK_CLASSES.fetch(role)) }
      ->(work) { (by_class[work.class] || web).call(work) }
    end

    # The work of an engine that runs at this moment, each with its thread.
    def running(role, ids)
      works = @native_pool.running.select { |work| work[:role] == role && ids.include?(work[:id]) }
      works.to_h { |work| [work, @pool.thread(work[:thread])] }.compact
    end

    # @return [Boolean] whether all pool threads have ended
    def shut
      @desk.stop
      @sides.each_value(&:stop)
      @native_pool.close
      ended = @pool.join(JOIN_S)
      Streams.finish(log: @log) if @plan.streams
      @support_thread.stop
      @native_pool.shut
      ended
    end

    # More threads than database connections would only wait for one.
    def threads_max
      pool = ActiveRecordPool
      max, sentence, level = pool.threads_max(@plan, pool.size)
      @log.public_send(level, sentence) if sentence
      max
    end

    def pool_settings
      plan = @plan
      { threads_min: plan.threads_min, threads_max: plan.threads_max, slot: @place.slot,
        stall_ms: plan.stall_ms.to_f, preempt_ms: plan.preempt_ms.to_f, thread_idle_s: plan.thread_idle_s.to_f,
        orphan_exit_s: plan.shutdown_timeout_s + ORPHAN_GRACE_S }
    end

    def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
