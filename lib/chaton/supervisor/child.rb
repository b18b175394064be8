# frozen_string_literal: true

require "json"
require_relative "heartbeat"

module Chaton
  class Supervisor
    # One worker process as the supervisor sees it, from the wish for it to its
    # death:
    #
    #   asked → booting → ready → stopping → dead
    #
    # `asked` lasts while a mold forks it; every state may go to `stopping` and
    # to `dead`. A dead child is never revived: its place gets a new Child.
    class Child
      # What a worker may take beyond its own deadline before it is killed.
      KILL_GRACE_S = 5.0

      # @return [Integer] the worker's number
      attr_reader :index
      # @return [Integer] its place on the board
      attr_reader :slot
      # @return [Array<Symbol>] what it does: :web, :jobs
      attr_reader :roles
      # @return [Object] who forks it; answers `generation`
      attr_reader :origin
      # @return [Leash]
      attr_reader :leash
      # @return [Integer, nil] process id, nil while `asked`
      attr_reader :pid
      # @return [Symbol] :asked, :booting, :ready, :stopping or :dead
      attr_reader :state
      # @return [Float] monotonic s since which it is in this state
      attr_reader :since_s
      # @return [Float] monotonic s of the fork
      attr_reader :forked_at_s

      # @param plan [Chaton::Config::Plan] for its roles and time limits
      # @param index [Integer]
      # @param slot [Integer]
      # @param origin [Object]
      # @param leash [Leash]
      # @param now_s [Float]
      def initialize(plan, index:, slot:, origin:, leash:, now_s:)
        @roles = plan.roles_of(index)
        @plan = plan.of_process(@roles)
        @index = index
        @slot = slot
        @origin = origin
        @leash = leash
        @served = false
        @forked_at_s = now_s
        @heartbeat = nil
        @signal = nil
        @killed = false
        enter(:asked, now_s, due_in_s: plan.boot_timeout_s)
      end

      # The process exists.
      #
      # @param pid [Integer]
      # @param now_s [Float]
      # @return [void]
      def forked(pid, now_s)
        @pid = pid
        @forked_at_s = now_s
        return signal(@signal) if @state == :stopping

        enter(:booting, now_s, due_in_s: @plan.boot_timeout_s) if @state == :asked
      end

      # Takes in what the leash told.
      #
      # @param now_s [Float]
      # @return [Boolean] whether it has just become ready
      def hear(now_s)
        @leash.read.count { |event| take(event, now_s) }.positive?
      end

      # Asks it to stop: it drains within its own deadline. Before it is ready
      # there is nothing to drain.
      #
      # @param now_s [Float]
      # @return [void]
      def stop(now_s)
        return if %i[stopping dead].include?(@state)

        end_with("TERM", (ready? ? @plan.shutdown_timeout_s : 0) + KILL_GRACE_S, now_s)
      end

      # Asks it to stop at once, whatever it runs.
      #
      # @param now_s [Float]
      # @return [void]
      def stop_now(now_s)
        end_with("QUIT", KILL_GRACE_S, now_s) unless @state == :dead || @signal == "QUIT"
      end

      # Lets it do something; see {Service::Orders}.
      #
      # @param what [Hash{Symbol=>Object}] "do" and what belongs to it
      # @return [Boolean] whether the order is on its way
      def order(what) = ready? && @leash.order(JSON.generate(what))

      # Sends it a signal; a process that has just ended is no error.
      #
      # @param name [String]
      # @return [void]
      def signal(name)
        Process.kill(name, @pid) if @pid && @state != :dead
      rescue Errno::ESRCH
        nil
      end

      # @param now_s [Float]
      # @return [void]
      def died(now_s)
        @leash.close
        enter(:dead, now_s)
      end

      # @return [Float, nil]
      def due_at
        return @due_at unless @state == :ready

        @due_at || @heartbeat.due_at
      end

      # Pings when it is time to.
      #
      # @param now_s [Float]
      # @return [void]
      def tick(now_s)
        return unless @state == :ready && @due_at.nil? && @heartbeat.ping?(now_s)

        @heartbeat.pinged(now_s)
        @leash.ping
      end

      # @param now_s [Float]
      # @return [String, nil] why it has to be killed, nil when it may live
      def fault(now_s)
        return silence(now_s) if @state == :ready
        return if @due_at.nil? || now_s < @due_at

        case @state
        when :asked then "it was not forked within boot_timeout (#{@plan.boot_timeout_s} s)"
        when :booting then "it was not ready within boot_timeout (#{@plan.boot_timeout_s} s)"
        when :stopping then "it was asked to stop with SIG#{@signal} and has not left in time"
        end
      end

      # Kills it, once; its end is seen like any other.
      #
      # @return [void]
      def kill
        @due_at = Float::INFINITY
        @killed = true
        @pid ? signal("KILL") : @origin.kill
      end

      # Kills it before it is ready: its signals are heard only then.
      #
      # @param why [String]
      # @return [void]
      def refuse(why)
        @refused = why
        kill
      end

      # @return [String, nil] why it did not come up
      def reason = @refused || @leash.reason

      # @return [Boolean] whether it has been ready at any time
      def served?
        @served
      end

      # @return [Boolean]
      def ready?
        @state == :ready
      end

      # @return [Boolean]
      def dead?
        @state == :dead
      end

      # @return [Boolean] whether its end is our doing, and no fault of what it ran
      def ended_by_us? = @killed || stopping?

      # @return [Boolean] whether its end was asked for
      def stopping?
        @state == :stopping
      end

      private

      def take(event, now_s)
        case event
        when :rust then @heartbeat&.rust_answered
        when :ruby then @heartbeat&.ruby_answered(now_s)
        when :ready then return become_ready(now_s)
        end
        false
      end

      def become_ready(now_s)
        return false unless %i[asked booting].include?(@state)

        @served = true
        @heartbeat = Heartbeat.new(@plan.alive_timeout_s, now_s)
        enter(:ready, now_s)
        true
      end

      def silence(now_s)
        return unless @heartbeat.lost?(now_s) && @due_at.nil?

        half = @heartbeat.rust_alive? ? "its Rust side answers, so something holds the GVL" : "nothing in it answers"
        format("no Ruby thread of it got the GVL for %.1f s (alive_timeout); %s", @heartbeat.silent_s(now_s), half)
      end

      def end_with(signal, within_s, now_s)
        @signal = signal
        enter(:stopping, now_s, due_in_s: within_s)
        signal(signal)
      end

      def enter(state, now_s, due_in_s: nil)
        @state = state
        @since_s = now_s
        @due_at = due_in_s && (now_s + due_in_s)
      end
    end
  end
end
