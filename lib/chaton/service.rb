# frozen_string_literal: true

require "chaton/native"
require "chaton/pool"
require "chaton/guardian"
require "chaton/active_record_pool"
require "chaton/web/env_template"
require "chaton/web/handler"

module Chaton
  # Everything one worker process runs: hub, web engine, pool and guardian.
  # Start it only after the fork: it starts threads, in Rust and in Ruby.
  class Service
    # Time the worker has, beyond its graceful stop, before it leaves by force
    # when the supervisor is gone.
    ORPHAN_GRACE_S = 5.0
    # Time for the answers of released requests to reach their clients.
    RELEASE_S = 0.2
    # Time for pool threads to end once nothing waits any more.
    JOIN_S = 1.0

    # @param plan [Config::Plan]
    # @param app [#call] the Rack application
    # @param sockets [Array<TCPServer, UNIXServer>] in the order of `plan.binds`
    # @param board [Native::Board]
    # @param slot [Integer] this worker's place on the board
    # @param leash [UNIXSocket, nil] the line to the supervisor
    # @param log [Telemetry::Log]
    def initialize(plan, app:, sockets:, board:, slot:, leash:, log:)
      @plan = plan
      @app = app
      @sockets = sockets
      @board = board
      @slot = slot
      @leash = leash
      @log = log
      @on_orphan = -> {}
    end

    # Sets what happens when the supervisor is gone. It is called on the
    # guardian's thread.
    #
    # @return [void]
    def on_orphan(&block)
      @on_orphan = block
    end

    # Accepts connections from its return on.
    #
    # @return [self]
    def start
      @plan = @plan.with(threads_max: threads_max)
      handler = Web::Handler.new(@app, log: @log, error_handler: @plan.hooks[:lowlevel_error_handler],
                                       early_hints: @plan.web[:early_hints])
      @hub = Native::Hub.new(hub_settings, @board, @leash&.fileno)
      @pool = Pool.new(@hub, handler, log: @log)
      @guardian = Guardian.new(@hub, @pool, log: @log, on_orphan: @on_orphan).start
      @hub.expect(@plan.threads_min)
      @pool.spawn(@plan.threads_min)
      @web = Native::Web.start(@hub, @board, listeners, templates, web_settings)
      self
    end

    # Takes no more connections; answers say `Connection: close`.
    #
    # @return [void]
    def quiet
      @web.drain
    end

    # Drains and stops.
    #
    # @param deadline_s [Float]
    # @return [Boolean] false when work was released at the deadline; what ran
    #   is then in the log, with backtraces
    def stop(deadline_s)
      quiet
      drained = @web.wait_drained(deadline_s)
      unless drained
        @guardian.report_running("still running at the end of the graceful stop: released")
        released = @hub.release_waiting
        @web.wait_drained(RELEASE_S)
        @log.warn("released requests that had not begun", count: released) if released.positive?
      end
      shut
      drained
    end

    # @return [Hash] what the worker does now; see `chaton status --json`
    def status
      stats = @hub.stats
      { queue: stats.slice(:waiting, :oldest_age_ms), pool: stats.except(:waiting, :oldest_age_ms),
        running: @hub.running, web: @web.stats }
    end

    private

    def shut
      @web.stop
      @hub.close
      @pool.join(JOIN_S)
      @guardian.stop
      @hub.shut
    end

    # More threads than database connections would only wait for one.
    def threads_max
      pool = ActiveRecordPool
      max, sentence, level = pool.threads_max(@plan, pool.size)
      @log.public_send(level, sentence) if sentence
      max
    end

    def hub_settings
      plan = @plan
      { threads_min: plan.threads_min, threads_max: plan.threads_max, queue_limit: plan.queue_limit,
        queue_bytes_max: plan.queue_bytes_max, queue_age_s: plan.queue_age_s.to_f, slot: @slot,
        stall_ms: plan.stall_ms.to_f, preempt_ms: plan.preempt_ms.to_f, thread_idle_s: plan.thread_idle_s.to_f,
        orphan_exit_s: plan.shutdown_timeout_s + ORPHAN_GRACE_S }
    end

    def web_settings
      web = @plan.web.to_h
      seconds = web.select { |name, _| name.end_with?("_s") }.transform_values(&:to_f)
      web.merge(seconds, slot: @slot, access_log: @plan.access_log, retry_after_s: @plan.retry_after_s,
                         accept_grace_ms: @plan.accept_grace_ms.to_f,
                         accept_defer_ms: @plan.accept_defer_ms.to_f, preempt_ms: @plan.preempt_ms.to_f)
    end

    def listeners
      @sockets.zip(@plan.binds).map do |socket, bind|
        [socket.fileno, bind.scheme == "unix" ? :unix : :tcp, bind.to_s]
      end
    end

    def templates
      @sockets.zip(@plan.binds).map { |socket, bind| Web::EnvTemplate.build(@plan, bind, port_of(socket, bind)) }
    end

    # A bind to port 0 got one from the operating system.
    def port_of(socket, bind)
      bind.scheme == "unix" ? 80 : socket.local_address.ip_port
    end
  end
end
