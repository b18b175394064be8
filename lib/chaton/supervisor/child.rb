# frozen_string_literal: true

require "json"
require_relative "worker_channel"

module Chaton
  class Supervisor
    # One worker process as the supervisor sees it, from the request to fork it to its death:
    #
    #   asked → booting → ready → stopping → dead
    #
    # `asked` lasts until it is forked; from every state it may go to `stopping` and to `dead`. A replacement is a new
    # Child.
    class Child
      # Seconds a worker may take beyond its own deadline before it is killed.
      KILL_GRACE_S = 5.0

      attr_reader :index
      # @return [Integer] its row in the shared memory
      attr_reader :scoreboard_slot
      # @return [Array<Symbol>] such as :web, :jobs
      attr_reader :roles, :forker
      attr_accessor :channel
      # @return [Integer, nil] process id, nil while `asked`
      attr_reader :pid
      # @return [Symbol] :asked, :booting, :ready, :stopping or :dead
      attr_reader :state
      # @return [Float] when it was forked (monotonic s)
      attr_reader :forked_at_s

      # Purposes of a stop that is part of a planned replacement.
      REPLACEMENTS = %i[restart memory].freeze

      # @param plan [Chaton::Config::Plan] for its roles and time limits
      # @param scoreboard [Native::Scoreboard] shows the worker that it is its supervisor that asks it to stop
      def initialize(plan, index:, scoreboard:, scoreboard_slot:, forker:, now_s:)
        @roles = plan.roles_of(index)
        @plan = plan.of_process(@roles)
        @index = index
        @scoreboard = scoreboard
        @scoreboard_slot = scoreboard_slot
        @forker = forker
        @channel = WorkerChannel.new(nil)
        @served = @refused = false
        @forked_at_s = now_s
        @heartbeat = nil
        @signal = nil
        @killed = false
        @blame = nil
        @purpose = :asked
        enter(:asked, now_s, due_in_s: plan.boot_timeout_s)
      end

      # The process exists.
      def forked(pid, now_s)
        @pid = pid
        @forked_at_s = now_s
        return signal(@signal) if @state == :stopping

        enter(:booting, now_s, due_in_s: @plan.boot_timeout_s) if @state == :asked
      end

      # Handles what has arrived on its channel.
      #
      # @return [Boolean] whether it has just become ready
      def read_channel(now_s)
        @channel.read.count { |event| take(event, now_s) }.positive?
      end

      # Asks it to drain within its own deadline and exit. Before it is ready there is nothing to drain.
      #
      # @param purpose [Symbol] :asked, :restart (of all workers, or of this one) or :memory, for the metrics
      def stop(now_s, purpose: :asked)
        return if %i[stopping dead].include?(@state)

        @purpose = purpose
        end_with("TERM", (ready? ? @plan.shutdown_timeout_s : 0) + KILL_GRACE_S, now_s)
      end

      # Asks it to exit without finishing its work.
      def stop_now(now_s, purpose: :asked)
        return if @state == :dead || @signal == "QUIT"

        @purpose = purpose unless stopping?
        end_with("QUIT", KILL_GRACE_S, now_s)
      end

      # @param command [Hash{Symbol=>Object}] "do" and its arguments; see {Workload::WorkerCommands}
      def command(command) = ready? && @channel.command(JSON.generate(command))

      # A process that has just ended is no error.
      #
      # @return [Boolean] whether the process was there
      def signal(name)
        return false if @pid.nil? || @state == :dead

        Process.kill(name, @pid).positive?
      rescue Errno::ESRCH
        false
      end

      # The process has ended.
      def ended(now_s)
        @channel.close
        enter(:dead, now_s)
      end

      def due_at
        return @due_at unless @state == :ready

        @due_at || @heartbeat.due_at
      end

      # Pings when it is time to.
      def tick(now_s)
        return unless @state == :ready && @due_at.nil? && @heartbeat.ping?(now_s)

        @heartbeat.pinged(now_s)
        @channel.ping
      end

      # @return [String, nil] why it has to be killed
      def kill_reason(now_s)
        return lost_heartbeat(now_s) if @state == :ready
        return if @due_at.nil? || now_s < @due_at

        case @state
        when :asked then "it was not forked within boot_timeout (#{@plan.boot_timeout_s} s)"
        when :booting then "it was not ready within boot_timeout (#{@plan.boot_timeout_s} s)"
        when :stopping then "it was asked to stop with SIG#{@signal} and has not exited in time"
        end
      end

      # The work that it runs is the reason why it has to end: its death counts against that work.
      #
      # @param cause [String] for the story of a job or record that ends dead
      def blame_work(cause)
        @blame = cause
      end

      # Kills it, once; its end is noticed like any other. A ready worker is killed only because no Ruby thread of it
      # gets the GVL.
      #
      # @return [Boolean] whether its end is still to come; false when somebody else has reaped it
      def kill
        blame_work(silence) if (@hung = ready?)
        @killed = true
        return false if @pid && !signal("KILL")

        @forker.kill unless @pid
        @due_at = Float::INFINITY
        true
      end

      # @return [String] why a ready worker is killed, as {#blame_work} takes it
      def silence = "no sign of life (alive_timeout #{@plan.alive_timeout_s} s)"

      # Kills it while it boots, when it does not handle signals yet.
      def kill_boot(reason)
        @kill_reason = reason
        kill
      end

      # The system refused it a process or a descriptor.
      def refuse(reason)
        @refused = true
        @kill_reason = reason
      end

      def refused? = @refused

      # @return [String, nil] why it could not boot
      def reason = @kill_reason || @channel.reason

      # @return [Boolean] whether it has been ready
      def served? = @served

      def ready? = @state == :ready

      def dead? = @state == :dead

      # @return [Symbol] why it ended, for the metrics; call it when it has ended
      def end_reason
        return @hung ? :hung : :killed if @killed && @served
        return @purpose if stopping?

        @served ? :died : :boot
      end

      # @param how [String] how the process ended
      # @return [String, nil] what its death counts as against the work that it ran; nil when it was asked to stop
      def death_cause(how) = @blame || (how unless @killed || stopping?)

      def stopping? = @state == :stopping

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

      def lost_heartbeat(now_s)
        return unless @heartbeat.lost?(now_s) && @due_at.nil?

        rust = @heartbeat.rust_alive?(now_s)
        half = rust ? "its Rust side answers, so a thread holds the GVL" : "nothing in it answers"
        format("no Ruby thread of it got the GVL for %.1f s (alive_timeout); %s", @heartbeat.silent_s(now_s), half)
      end

      def end_with(signal, within_s, now_s)
        @signal = signal
        @scoreboard.note_stop(@scoreboard_slot, REPLACEMENTS.include?(@purpose))
        enter(:stopping, now_s, due_in_s: within_s)
        signal(signal)
      end

      def enter(state, now_s, due_in_s: nil)
        @state = state
        @due_at = due_in_s && (now_s + due_in_s)
      end
    end

    # Decides from pings and answers whether a worker is *alive*. Pure: it gets the time and says what is due.
    #
    # A worker answers a ping twice: its Rust side at once, and a Ruby thread as soon as it gets the GVL. Only the
    # second answer counts as alive; the first one tells in the log which half has stopped.
    #
    # The age of the oldest *unanswered ping* is measured, not the time since the last answer: after the supervisor
    # itself was stopped for a while (SIGSTOP, a suspended laptop) no ping is overdue, and no worker is killed.
    class Heartbeat
      # A ping every quarter of the timeout: a loss is detected after 1.25 × the timeout at the latest.
      PINGS_PER_TIMEOUT = 4

      # @param timeout_s [Numeric] longest silence; 0 switches the check off
      def initialize(timeout_s, now_s)
        @timeout_s = timeout_s.to_f
        @next_ping_at = now_s
        @unanswered_since = nil
        @rust_unanswered_since = nil
        @ruby_seen_at = now_s
      end

      def on? = @timeout_s.positive?

      def due_at
        return unless on?

        [@next_ping_at, @unanswered_since && (@unanswered_since + @timeout_s)].compact.min
      end

      def ping?(now_s) = on? && now_s >= @next_ping_at

      # Notes that a ping was sent.
      def pinged(now_s)
        @unanswered_since ||= now_s
        @rust_unanswered_since ||= now_s
        @next_ping_at = now_s + (@timeout_s / PINGS_PER_TIMEOUT)
      end

      def rust_answered
        @rust_unanswered_since = nil
      end

      # Notes that a Ruby thread of the worker has answered.
      def ruby_answered(now_s)
        @ruby_seen_at = now_s
        @unanswered_since = nil
      end

      def lost?(now_s) = on? && !@unanswered_since.nil? && now_s - @unanswered_since >= @timeout_s

      # @return [Float] seconds since a Ruby thread of the worker last answered
      def silent_s(now_s) = now_s - @ruby_seen_at

      # A Rust side that runs leaves at most the latest ping unanswered. One that answered the first ping and was
      # stopped before Ruby answered it (SIGSTOP) has left older ones.
      #
      # @return [Boolean] whether the Rust side still answers
      def rust_alive?(now_s)
        @rust_unanswered_since.nil? || now_s - @rust_unanswered_since < @timeout_s / 2
      end
    end
  end
end
