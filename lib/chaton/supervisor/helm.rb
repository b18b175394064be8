# frozen_string_literal: true

require_relative "event_loop"
require_relative "orders"
require_relative "quiet"
require_relative "rollout"
require_relative "status"

module Chaton
  class Supervisor
    # What a supervised server can be told, by signal or over the control
    # socket, and the state that follows:
    #
    #   starting → running → stopping | restarting
    class Helm
      include Orders

      # @return [Symbol] :starting, :running, :stopping or :restarting
      attr_reader :state
      # @return [Integer] for the end
      attr_reader :exit_status

      # @param plan [Chaton::Config::Plan]
      # @param fleet [Fleet]
      # @param origins [Origins]
      # @param memory [Hash{Symbol=>Native::Scoreboard, Native::InFlightTable, nil}] what processes share: board and ledger
      # @param ceilings [Ceilings]
      # @param surroundings [Surroundings]
      # @param log [Telemetry::Log]
      def initialize(plan, fleet:, origins:, memory:, ceilings:, surroundings:, log:)
        @plan = plan
        @fleet = fleet
        @origins = origins
        @memory = memory
        @ceilings = ceilings
        @surroundings = surroundings
        @log = log
        @quiet = Quiet.new(fleet)
        @status = Status.new(plan, memory.fetch(:board), ceilings)
        @state = :starting
        @exit_status = 0
      end

      # @return [Boolean] whether the end has begun
      def over?
        %i[stopping restarting].include?(@state)
      end

      # @return [Boolean] whether nothing is left to wait for
      def done?
        over? && @fleet.children.empty? && !@origins.alive?
      end

      # @return [Hash{Symbol=>Object}] for `chaton status`
      def status
        @status.to_h(state: @state, listen: @surroundings.listeners.addresses, fleet: @fleet, restart: @rollout&.to_h)
      end

      # Lets every worker finish what it runs, then leaves.
      #
      # @return [nil]
      def stop
        @surroundings.notify.stopping
        wind_down(:stopping)
      end

      # Ends every worker whatever it runs, then leaves.
      #
      # @return [nil]
      def stop_now
        wind_down(:stopping, at_once: true)
      end

      # Lets every worker finish, then starts the program again in this process.
      #
      # @return [String, nil]
      def restart
        return "the server is already stopping" if over?

        @surroundings.notify.reloading
        wind_down(:restarting)
      end

      # Replaces worker by worker, by the code that is on disk now.
      #
      # @return [String, nil]
      def phased_restart
        return "the server is stopping" if over?
        return "a phased restart is already running" if @rollout&.running?

        @surroundings.notify.reloading
        # Who comes now is meant to work.
        @quiet.lift
        target = @origins.next(@surroundings.listeners.sockets, @memory) { |child, why| @fleet.missed(child, why) }
        @rollout = Rollout.new(@fleet, target, log: @log, urgent: @ceilings.method(:urgent?)) do
          @surroundings.ready(**facts)
        end
        nil
      end

      # Workers stop accepting, go on serving their open connections, and take no more jobs.
      #
      # @return [nil]
      def quiet
        @log.info("quiet: workers take no new work")
        @quiet.ask("USR1")
        nil
      end

      # Tells workers to trace, or to say what they have seen.
      #
      # @param order [TraceOrder]
      # @return [Array<Integer>] numbers of those that were told
      def trace(order)
        ready = @fleet.children.select { |child| child.ready? && order.for?(child.index) }
        ready.select { |child| child.order(order.to_h) }.map(&:index)
      end

      # Workers take no more jobs, and fetch no more records.
      #
      # @return [nil]
      def quiet_intake
        @log.info("quiet: workers take no more jobs and records")
        @quiet.ask("TSTP")
        nil
      end

      # One worker more, for what the first one does.
      #
      # @return [String, nil]
      def grow
        "no further worker: the limit is #{Fleet::EXTRA_WORKERS_MAX} above the configured number" unless @fleet.grow
      end

      # One worker less.
      #
      # @return [String, nil]
      def shrink
        "the last worker stays; send TERM to stop the server" unless @fleet.shrink
      end

      # Draws the conclusions from what has happened; after every wake-up.
      #
      # @return [void]
      def steer
        keep_below_ceilings unless over?
        return if over?

        @quiet.tell

        # One thing at a time: a worker that is being recycled comes to its end first.
        @rollout&.tick(EventLoop.now_s) unless @ceilings.busy?
        return become_ready if @state == :starting && @fleet.complete? && !@ceilings.doubts?

        despair("no worker could be started", @fleet.seats.first.given_up) if @fleet.hopeless?
      end

      private

      def become_ready
        @state = :running
        @surroundings.ready(**facts)
      end

      def facts
        { mode: "cluster", workers: @fleet.seats.size }
      end

      def pass_on_hang_up
        @fleet.signal("HUP")
        nil
      end

      def keep_below_ceilings
        @ceilings.steer(EventLoop.now_s, starting: @state == :starting, held: @rollout&.running? || false)
        despair("cannot start", @ceilings.refusal) if @state == :starting && @ceilings.refusal
      end

      # Nobody serves and nobody is going to.
      def despair(what, reason)
        @log.error("#{what}; the server ends", reason: reason)
        @exit_status = 1
        wind_down(:stopping)
      end

      def wind_down(state, at_once: false)
        @log.info(at_once ? "stopping at once" : "stopping when running work is finished") if @state != state || at_once
        @state = state
        @fleet.stop(at_once: at_once)
        @origins.retire
        nil
      end
    end
  end
end
