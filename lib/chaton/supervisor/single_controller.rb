# frozen_string_literal: true

require "json"
require_relative "../rails/active_record_pool"
require_relative "../telemetry/backtraces"
require_relative "../worker/drain"
require_relative "event_loop"
require_relative "cluster_status"
require_relative "signal_commands"
require_relative "single_ceiling"

module Chaton
  class Supervisor
    # Carries out the commands to a server without workers; see {Controller}. A source of the event loop: it waits for
    # the drain and checks the memory ceiling.
    class SingleController
      include SignalCommands

      NO_WORKERS = "there are no workers to add or remove (workers 0)"
      # Collect garbage and give free memory back; see {Workload::WorkerCommands}.
      TRIM = JSON.generate({ do: "trim" }).freeze

      # @return [Symbol] :starting, :running, :stopping or :restarting
      attr_reader :state

      # @raise [ConfigError] when the loaded application alone is above the memory ceiling
      def initialize(plan, workload:, resources:, scoreboard:, log:)
        @plan = plan
        @workload = workload
        @readiness = Readiness.new(plan, scoreboard)
        @scoreboard = scoreboard
        @resources = resources
        @log = log
        @state = :starting
        @started_at_s = EventLoop.now_s
        @complete = nil
        @ceiling = SingleCeiling.new(plan.memory, restarts: !plan.development?, log: log)
      end

      def become_ready
        @state = :running
        @resources.ready(mode: "single")
        @resources.greet(ActiveRecordPool.size)
        @resources.hooks.run_all(:after_booted)
      end

      # @return [Boolean] whether the workload has stopped, and all commands beside it
      def done? = !@complete.nil? && !@resources.services.alive?

      # @return [Boolean] whether all work was finished
      def complete? = @complete

      # @return [Hash{String=>String}] variables for the next run of this process
      def restart_environment = @ceiling.restart_environment

      def status
        { pid: Process.pid, mode: "single", state: @state, **@readiness.of(report).except(:workers), tag: @plan.tag,
          environment: @plan.environment, uptime_s: (EventLoop.now_s - @started_at_s).round(3),
          listen: @resources.listeners.addresses, store: @plan.jobs&.store_shown, memory: @ceiling.to_h,
          workload: @workload.status, event_streams: @scoreboard.event_streams, **@resources.services.status,
          **@resources.admin.status }
      end

      # @return [Hash{Symbol=>Object}] for the admin endpoint
      def report
        state = { starting: :booting, running: :ready }.fetch(@state, :stopping)
        worker = { worker: 0, slot: 0, pid: Process.pid, state: state, roles: @plan.roles }
        { state: @state, pid: Process.pid, workers: [worker], exits: {}, given_up: [] }
      end

      def stop_now
        return wind_down(:stopping, at_once: true) unless @drain

        Telemetry::Backtraces.write(@log, "immediate stop")
        @resources.services.kill
        @state = :stopping
        @complete = false
        nil
      end

      # Without workers there is nothing to replace one by one.
      alias phased_restart restart

      # @param index [Integer] the only process has the number 0
      def restart_worker(index) = index.zero? ? restart : "there is no worker #{index} (workers 0)"

      def quiet
        @log.info("quiet: no new work is taken")
        @workload.quiet
        nil
      end

      def quiet_intake
        @workload.quiet_intake
        nil
      end

      # @return [Array<Integer>] as {Controller#ask}
      def ask(request)
        return [] if @state == :starting || over? || !request.for?(0)

        @workload.run_command(JSON.generate(request.to_h))
        [0]
      end

      def grow = NO_WORKERS

      alias shrink grow

      def ios = @drain && @complete.nil? ? [@drain.io] : []

      # The drain is over.
      def readable(_io)
        @complete = @drain.complete?
      end

      def due_at = (@ceiling.due_at if @state == :running)

      # Checks the memory ceiling.
      def tick(now_s)
        return unless @state == :running

        case @ceiling.check(now_s)
        when :trim then @workload.run_command(TRIM)
        when :restart then restart&.then { |refusal| @log.warn(refusal) }
        end
      end

      private

      def forward_hang_up
        @workload.reload_certificates
        nil
      end

      def accepting? = @workload.accepting?

      def end_work(at_once:)
        @drain ||= Worker::Drain.new(@workload, at_once ? 0 : @plan.shutdown_timeout_s)
        nil
      end
    end
  end
end
