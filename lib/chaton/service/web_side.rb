# frozen_string_literal: true

require_relative "../native"
require_relative "../web/env_template"
require_relative "../web/handler"

module Chaton
  class Service
    # The role web in one process: the web engine, and what runs its requests.
    class WebSide
      # Time for the answers of released requests to reach their clients.
      RELEASE_S = 0.2

      # @param plan [Config::Plan]
      # @param app [#call] the Rack application
      # @param sockets [Array<TCPServer, UNIXServer>] in the order of `plan.binds`
      # @param place [Place]
      # @param log [Telemetry::Log]
      def initialize(plan, app:, sockets:, place:, log:)
        @plan = plan
        @app = app
        @sockets = sockets
        @place = place
        @log = log
      end

      # @return [#call] runs one request
      def handler
        Web::Handler.new(@app, log: @log, error_handler: @plan.hooks[:lowlevel_error_handler],
                               early_hints: @plan.web[:early_hints])
      end

      # Accepts connections from its return on.
      #
      # @param native_pool [Native::Pool]
      # @return [void]
      def start(native_pool)
        @engine = Native::Web.start(native_pool, @place.board, listeners, templates, settings)
      end

      # Takes no more connections; answers say `Connection: close`.
      #
      # @return [void]
      def quiet = @engine.quiet

      # @param timeout_s [Float]
      # @return [Boolean] whether every connection has ended
      def wait(timeout_s) = @engine.wait_idle(timeout_s)

      # Answers what waits with 503; what runs goes on.
      #
      # @return [void]
      def give_up
        released, = @engine.give_up
        @engine.wait_idle(RELEASE_S)
        @log.warn("released requests that had not begun", count: released) if released.positive?
      end

      # @return [void]
      def stop = @engine.stop

      # @return [Hash]
      def status = { web: @engine.stats }

      private

      def settings
        web = @plan.web.to_h
        seconds = web.select { |name, _| name.end_with?("_s") }.transform_values(&:to_f)
        web.merge(seconds, slot: @place.slot, queue_limit: @plan.queue_limit,
                           queue_bytes_max: @plan.queue_bytes_max, queue_age_s: @plan.queue_age_s.to_f,
                           access_log: @plan.access_log, retry_after_s: @plan.retry_after_s,
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
end
