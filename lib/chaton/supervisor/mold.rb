# frozen_string_literal: true

require "json"
require "socket"
require_relative "event_loop"

module Chaton
  class Supervisor
    # The supervisor's handle on its *mold*: a fresh process that has loaded the
    # code now on disk and forks workers from it on command. Their origin.
    #
    # One SEQPACKET socket joins the two, one JSON message a packet:
    #
    #   → {"fork":SERIAL,"index":I,"slot":S}  with the worker's end of its leash (SCM_RIGHTS)
    #   ← {"loaded":true} | {"failed":"reason"}          once
    #   ← {"forked":SERIAL,"pid":PID}                    for each
    #
    # The mold forks twice and lets the process in between leave, so that the
    # kernel hands the worker to the supervisor, which is a subreaper: workers
    # are its direct children, whoever forked them. See docs/FORK_SAFETY.md.
    #
    # A mold that dies is started again when the next worker is wanted.
    class Mold
      # A longer message is a bug.
      MESSAGE_BYTES_MAX = 65_536
      # What a dismissed mold may take to leave.
      KILL_GRACE_S = 5.0

      # @return [Integer]
      attr_reader :generation
      # @return [String, nil] why it is dead
      attr_reader :reason
      # @return [Integer, nil]
      attr_reader :pid

      # @param relaunch [Relaunch]
      # @param generation [Integer]
      # @param sockets [Hash{String=>IO}] listening sockets by bind
      # @param memory [Hash{Symbol=>Native::Scoreboard, Native::InFlightTable, nil}] what processes share: board and ledger
      # @param load_timeout_s [Numeric]
      # @param log [Telemetry::Log]
      # @yield [child, reason] a worker that will never be forked
      def initialize(relaunch, generation:, sockets:, memory:, load_timeout_s:, log:, &missed)
        @relaunch = relaunch
        @generation = generation
        @sockets = sockets
        @memory = memory.compact
        @load_timeout_s = load_timeout_s
        @log = log
        @missed = missed
        @serial = 0
        @waiting = []
        @asked = {}
        @state = :dead
        @retired = false
      end

      # Starts the process.
      #
      # @return [Mold] self
      def start
        @io, theirs = UNIXSocket.pair(:SEQPACKET)
        @state = :loading
        @reason = nil
        @due_at = EventLoop.now_s + @load_timeout_s
        marks = { generation: @generation, socket: theirs.fileno, **@memory.transform_values(&:fileno) }
        ios = @memory.each_value.map { |shared| IO.for_fd(shared.fileno, autoclose: false) }
        @pid = @relaunch.spawn(@sockets, ios: [theirs, *ios],
                                         environment: { MoldProcess::VARIABLE => JSON.generate(marks) })
        @log.info("mold started", generation: @generation, pid: @pid)
        self
      rescue SystemCallError => e
        die("it could not be started: #{e.message}")
        self
      ensure
        theirs&.close
      end

      # @param child [Child]
      # @param theirs [UNIXSocket] the worker's end of the leash
      # @return [void]
      def fork_worker(child, theirs)
        @waiting << [child, theirs]
        return start if dead?

        order if ready?
      end

      # @return [Boolean]
      def ready?
        @state == :ready
      end

      # @return [Boolean]
      def dead?
        @state == :dead
      end

      # @return [Boolean] whether it was dismissed
      def retired?
        @retired
      end

      # Lets it go: nobody will be forked from it any more.
      #
      # @return [void]
      def retire
        return if @retired

        @retired = true
        @due_at = EventLoop.now_s + KILL_GRACE_S if @pid
        signal("TERM")
        miss("its mold was dismissed")
      end

      # @return [void]
      def kill
        @due_at = nil
        signal("KILL")
      end

      # @return [Boolean] whether the process may still exist
      def alive?
        !@pid.nil?
      end

      # @return [Array<IO>]
      def ios
        @io && !@io.closed? ? [@io] : []
      end

      # Takes in every message that has arrived.
      #
      # @return [void]
      def readable(_io = @io)
        while @io && !@io.closed?
          message = @io.recvmsg_nonblock(MESSAGE_BYTES_MAX, exception: false)
          return if message == :wait_readable

          bytes = message&.first
          return @io.close if bytes.nil? || bytes.empty?

          take(JSON.parse(bytes, symbolize_names: true))
        end
      rescue SystemCallError
        @io.close
      end

      # @return [Float, nil]
      def due_at
        @due_at
      end

      # @return [void]
      def tick(now_s)
        return unless @due_at && now_s >= @due_at

        @reason = "it was not loaded within boot_timeout (#{@load_timeout_s} s)" if @state == :loading
        kill
      end

      # A process has ended.
      #
      # @param pid [Integer]
      # @param how [String] in words
      # @return [Boolean] whether it was this mold
      def ended(pid, how)
        return false unless pid == @pid

        @pid = nil
        die(@reason || "it ended (#{how}); its own lines are above in the log")
        @log.warn("mold ended", generation: @generation, status: how, reason: @reason) unless @retired
        true
      end

      # Closes what belongs to the supervisor; in a forked child.
      #
      # @return [void]
      def let_go
        @io&.close
        @waiting.each { |_, theirs| theirs.close }
      end

      private

      def take(message)
        case message
        in { loaded: true } then loaded
        in { failed: String => reason } then @reason = reason
        in { forked: Integer => serial, pid: Integer => pid } then @asked.delete(serial)&.forked(pid, EventLoop.now_s)
        end
      end

      def loaded
        return unless @state == :loading

        @state = :ready
        @due_at = nil
        @log.info("mold ready", generation: @generation, pid: @pid)
        order
      end

      def order
        while (child, theirs = @waiting.shift)
          @asked[@serial += 1] = child
          message = { fork: @serial, index: child.index, slot: child.slot }
          @io.sendmsg(JSON.generate(message), 0, nil, Socket::AncillaryData.unix_rights(theirs))
          theirs.close
        end
      rescue SystemCallError, IOError
        # It is dying; its end is reported by the kernel, and then these are missed.
        theirs.close
      end

      def die(reason)
        @reason = reason
        @state = :dead
        @due_at = nil
        @io&.close
        miss("its mold: #{reason}")
      end

      # Whoever waits for a fork waits in vain.
      def miss(reason)
        @waiting.each { |_, theirs| theirs.close }
        children = @waiting.map(&:first) + @asked.values
        @waiting.clear
        @asked.clear
        children.each { |child| @missed.call(child, reason) }
      end

      def signal(name)
        Process.kill(name, @pid) if @pid
      rescue Errno::ESRCH
        nil
      end
    end
  end
end
