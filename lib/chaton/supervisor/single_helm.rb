# frozen_string_literal: true

require "json"
require_relative "../telemetry/backtraces"
require_relative "../worker/drain"
require_relative "event_loop"
require_relative "orders"
require_relative "single_ceiling"

module Chaton
  class Supervisor
    # What a server without workers can be told, by signal or over the control
    # socket. A source of the event loop: it watches the drain.
    class SingleHelm
      include Orders

      NO_WORKERS = "there are no workers to add or remove (workers 0)"
      # Collect, and give free memory back; see {Service::Orders}.
      TRIM = JSON.generate({ do: "trim" }).freeze

      # @return [Symbol] :starting, :running, :stopping or :restarting
      attr_reader :state

      # @param plan [Chaton::Config::Plan]
      # @param service [Chaton::Service]
      # @param surroundings [Surroundings]
      # @param log [Telemetry::Log]
      # @raise [ConfigError] when what is loaded is above the ceiling of memory
      def initialize(plan, service:, surroundings:, log:)
        @plan = plan
        @service = service
        @surroundings = surroundings
        @log = log
        @state = :starting
        @started_at_s = EventLoop.now_s
        @complete = nil
        @ceiling = SingleCeiling.new(plan.memory, restarts: !plan.development?, log: log)
      end

      # @return [void]
      def become_ready
        @state = :running
        @surroundings.ready(mode: "single")
      end

      # @return [Boolean] whether the end has begun
      def over?
        %i[stopping restarting].include?(@state)
      end

      # @return [Boolean] whether nothing is left to wait for
      def done?
        !@complete.nil?
      end

      # @return [Boolean] whether all work was finished
      def complete?
        @complete
      end

      # @return [Hash{String=>String}] what the next life of this process must find in its environment
      def bequest = @ceiling.bequest

      # @return [Hash{Symbol=>Object}] for `chaton status`
      def status
        { pid: Process.pid, mode: "single", state: @state, tag: @plan.tag, environment: @plan.environment,
          uptime_s: (EventLoop.now_s - @started_at_s).round(3), listen: @surroundings.listeners.addresses,
          store: @plan.jobs&.store_shown, memory: @ceiling.to_h, service: @service.status }
      end

      # @return [nil]
      def stop
        @surroundings.notify.stopping
        drain(:stopping, @plan.shutdown_timeout_s)
      end

      # @return [nil]
      def stop_now
        return drain(:stopping, 0) unless @drain

        Telemetry::Backtraces.write(@log, "immediate stop")
        @state = :stopping
        @complete = false
        nil
      end

      # @return [String, nil]
      def restart
        return "the server is already stopping" if over?

        @surroundings.notify.reloading
        drain(:restarting, @plan.shutdown_timeout_s)
      end

      # There is nobody to be replaced one by one.
      alias phased_restart restart

      # @return [nil]
      def quiet
        @log.info("quiet: no new work is taken")
        @service.quiet
        nil
      end

      # Tells the tracer, as {Helm#trace} does.
      #
      # @param order [TraceOrder]
      # @return [Array<Integer>]
      def trace(order)
        return [] if @state == :starting || over? || !order.for?(0)

        @service.order(JSON.generate(order.to_h))
        [0]
      end

      # @return [nil]
      def quiet_intake
        @service.quiet_intake
        nil
      end

      # @return [String]
      def grow
        NO_WORKERS
      end
      alias shrink grow

      # @return [Array<IO>]
      def ios
        @drain && !done? ? [@drain.io] : []
      end

      # The drain is over.
      #
      # @return [void]
      def readable(_io)
        @complete = @drain.complete?
      end

      # @return [Float, nil]
      def due_at
        @ceiling.due_at if @state == :running
      end

      # Looks after its memory.
      #
      # @return [void]
      def tick(now_s)
        return unless @state == :running

        case @ceiling.look(now_s)
        when :trim then @service.order(TRIM)
        when :restart then restart
        end
      end

      private

      def drain(state, deadline_s)
        @log.info(deadline_s.zero? ? "stopping at once" : "stopping when running work is finished")
        @state = state
        @drain ||= Worker::Drain.new(@service, deadline_s)
        nil
      end
    end
  end
end
