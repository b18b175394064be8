# frozen_string_literal: true

require_relative "native"
require_relative "pool"
require_relative "support_thread"
require_relative "rails/active_record_pool"
require_relative "dashboard"
require_relative "live"
require_relative "memory/collector"
require_relative "memory/tracer_control"
require_relative "workload/code"
require_relative "workload/role"
require_relative "workload/worker_commands"
require_relative "workload/web_role"
require_relative "streams"
require_relative "rails/notifications"
require_relative "telemetry/traces"

module Chaton
  # Everything one worker process runs: the pool, the support thread, and an engine for each of its roles.
  # It is started only after the fork, because it starts threads, in Rust and in Ruby.
  class Workload
    # Time for pool threads to end once nothing waits any more.
    JOIN_S = 1.0
    # Time for the last spans once the time of the stop has passed.
    LATE_SPANS_S = 0.3
    # Workers that may relay the outbox: one does, and one follows it at once. Each has a connection.
    RELAYS = 2
    private_constant :RELAYS

    # The class of {Native} that each role's work has.
    WORK_CLASSES = { jobs: :Job, streams: :Batch }.freeze

    # @param app [#call, nil] the Rack application; nil without the role web
    # @param sockets [Array<TCPServer, UNIXServer>] in the order of `plan.binds`
    def initialize(plan, app:, sockets:, context:, log:)
      @plan = plan.of_process(context.roles)
      @app = app
      @sockets = sockets
      @context = context
      @log = log
      @on_orphan = -> {}
    end

    # Sets the block that is called on the support thread when the supervisor is gone.
    def on_orphan(&block)
      @on_orphan = block
    end

    # Takes requests once it has returned, and jobs and records once the block has, which says that it is ready: a
    # supervisor that knows it as ready kills it if the first of them hangs.
    def start
      # The application, which may name them, is loaded by now.
      @plan = Code.settled(@plan)
      @plan = Jobs::SidekiqBoot.apply(@plan, @context.roles) if @context.roles.include?(:jobs)
      @plan = @plan.with(threads_max: threads_max)
      @native_pool = Native::Pool.new(document, @context.scoreboard, @context.channel&.fileno)
      @memory = Memory::Collector.new(@plan, log: @log).start(@native_pool)
      @tracer_control = Memory::TracerControl.new(@plan, worker: @context.index || 0, log: @log)
      @roles = roles
      Telemetry::Traces.start(@plan, @native_pool)
      start_threads
      Dashboard.of_process(@plan, @context.scoreboard)
      # Records that were produced before the fork are sent by the first worker, whatever its roles are.
      Streams.started(log: @log, pool: @native_pool) if @plan.streams
      @roles.each_value { |role| role.start(@native_pool) }
      @tracer_control.start_if_configured
      yield if block_given?
      @roles.each_value(&:begin)
      @relay = relay
      self
    end

    # @return [Boolean] whether it accepts connections
    def accepting? = @context.scoreboard.read(@context.slot).fetch(:accepting, false)

    # Closes the listening sockets in a forked child.
    def close_in_child = @roles&.dig(:web)&.close_in_child

    # Reads the certificates of the web engine again.
    def reload_certificates = @roles[:web]&.reload_certificates

    # Takes no more work; work it has is finished.
    def quiet
      @roles.each_value(&:quiet)
    end

    # Takes no more jobs and batches, but still requests.
    def quiet_intake
      @roles.values_at(:jobs, :streams).compact.each(&:quiet)
    end

    # Drains and stops.
    #
    # @return [Boolean] false when work was given up at the deadline (running work is then in the log, with
    #   backtraces), or when a pool thread has not ended, which a normal exit would wait for
    def stop(deadline_s)
      deadline = now_s + deadline_s
      quiet
      late = @roles.values.reject { |role| role.wait([deadline - now_s, 0.0].max) }
      unless late.empty?
        @support_thread.report_running("still running at the end of the graceful stop")
        late.each(&:give_up)
      end
      ended = shut(deadline, late.empty?)
      late.empty? && ended
    end

    # Sends back the jobs of a sibling that died.
    #
    # @param line [String] JSON
    def recover(line)
      jobs = @roles[:jobs]
      jobs ? jobs.recover(line) : @log.warn("asked to recover a dead worker's jobs without the role jobs")
    end

    # Runs a command of the supervisor or of the control socket; see {WorkerCommands}.
    #
    # @param line [String] JSON
    def run_command(line)
      @commands ||= WorkerCommands.new(memory: @memory, tracer_control: @tracer_control,
                                       running: @native_pool.method(:running), log: @log,
                                       groups: -> { @roles[:streams]&.stats&.fetch(:groups) },
                                       crons: @plan.jobs ? @plan.jobs.crons : [])
      @commands.call(line)
    end

    # @return [Hash] what the worker does now; see `chaton status --json`
    def status
      stats = @native_pool.stats
      { roles: @context.roles, queue: stats.slice(:waiting, :oldest_age_ms),
        pool: stats.except(:waiting, :oldest_age_ms), running: @native_pool.running, memory: @memory.status,
        **@roles.transform_values(&:stats) }
    end

    private

    # Hands what transactions of the application have stored (`outbox: true`) to the log, if no other process does.
    def relay
      here = @context.index.to_i < RELAYS && @plan.streams
      return unless here && @plan.jobs&.store&.start_with?("postgres")

      Native::OutboxRelay.start(JSON.generate(@plan.jobs.store_settings), @plan.streams.log_document)
    end

    # The settings of this process as the extension takes them.
    def document
      web = @context.roles.include?(:web)
      static_files = Web::PublicFiles.new(@plan, @app, log: @log).settings if web
      @plan.engine_document(roles: @context.roles, slot: @context.slot, index: @context.index || 0,
                            static_files: static_files)
    end

    def start_threads
      @pool = Pool.new(@native_pool, handler, log: @log)
      @support_thread = SupportThread.new(@native_pool, @pool, log: @log, on: reactions).start
      @native_pool.expect(@plan.threads_min)
      @pool.spawn(@plan.threads_min)
    end

    # The roles by name. The code of jobs and streams is loaded only where they run.
    def roles
      (%i[web jobs streams] & @context.roles).to_h { |name| [name, role(name, context: @context, log: @log)] }
    end

    def role(name, **common)
      case name
      when :web then WebRole.new(@plan, app: @app, sockets: @sockets, **common)
      when :jobs
        require_relative "workload/jobs_role"
        JobsRole.new(@plan, **common)
      when :streams
        require_relative "workload/streams_role"
        StreamsRole.new(@plan, **common)
      end
    end

    # The reaction to each event from Rust.
    def reactions
      { orphan: ->(_) { @on_orphan.call }, recover: method(:recover), signal: StoreSignals.new(self, log: @log),
        order: method(:run_command), collections: @memory.method(:report), idle: @memory.method(:idle),
        full_wanted: @memory.method(:full) }
    end

    # Runs a unit of work on a pool thread.
    def handler
      handlers = @roles.to_h do |name, role|
        [name, Telemetry::Traces.around(Notifications.around(name, role.handler, log: @log))]
      end
      return handlers.values.first if handlers.size == 1

      web = handlers.delete(:web)
      by_class = handlers.transform_keys { |role| Native.const_get(WORK_CLASSES.fetch(role)) }
      ->(work) { (by_class[work.class] || web).call(work) }
    end

    # The engine of the web encrypts for who has hijacked a connection, so it outlives the pool's threads. Others wait
    # for clients whose connections it closes.
    #
    # @return [Boolean] whether all pool threads have ended
    def shut(deadline, idle)
      @tracer_control.stop
      @memory.keep
      @native_pool.close if idle
      ended = idle && @pool.join(JOIN_S)
      @roles.each_value { |role| role.wait([deadline - now_s, 0.0].max) } if idle
      @roles.each_value(&:stop)
      @native_pool.close
      ended ||= @pool.join(JOIN_S)
      Jobs.finish(log: @log, time_s: replaced? ? [deadline - now_s, 0.0].max : 0.0) if @plan.jobs
      @relay&.stop
      Streams.finish(log: @log) if @plan.streams
      Live.finish
      Telemetry::Traces.stop(@plan, [deadline - now_s, LATE_SPANS_S].max, log: @log)
      @support_thread.stop
      @native_pool.shut
      ended
    end

    # Whether another process takes its place, so that nobody waits for its end.
    def replaced? = @context.scoreboard.read(@context.slot).fetch(:replaced)

    # More threads than database connections would only wait for one.
    def threads_max
      pool = ActiveRecordPool
      max, sentence, level = pool.threads_max(@plan, pool.size)
      @log.public_send(level, sentence) if sentence
      max
    end

    def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
