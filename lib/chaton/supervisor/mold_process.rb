# frozen_string_literal: true

require "json"
require "socket"
require_relative "../errors"
require_relative "../telemetry/title"
require_relative "../worker"
require_relative "../worker/hooks"
require_relative "ledger"
require_relative "listeners"
require_relative "preload"

module Chaton
  class Supervisor
    # What runs inside a mold: load the code, say so, then fork a worker for
    # each message until the supervisor closes the socket. {Mold} documents the
    # protocol. It has no engine, no thread and no event loop of its own.
    class MoldProcess
      # JSON: generation, and the descriptors of the socket, of the board and of the ledger, if there is one.
      VARIABLE = "CHATON_MOLD"

      # @return [Boolean] whether this process was started as a mold
      def self.asked?
        ENV.key?(VARIABLE)
      end

      # @param plan [Chaton::Config::Plan] the new one
      # @param log [Telemetry::Log]
      def initialize(plan, log:)
        @plan = plan
        @log = log
        marks = JSON.parse(ENV.delete(VARIABLE), symbolize_names: true)
        @generation = marks.fetch(:generation)
        @socket = UNIXSocket.for_fd(marks.fetch(:socket))
        @socket.close_on_exec = true
        @board_fd = marks.fetch(:board)
        @ledger_fd = marks[:ledger]
      end

      # @return [Integer] exit status
      def run
        Telemetry::Title.mold(generation: @generation, tag: @plan.tag)
        # The terminal's Ctrl-C is the supervisor's business.
        trap("INT", "IGNORE")
        trap("TERM") { exit!(0) }
        @kit = kit
        Worker::Hooks.new(@plan.hooks, log: @log).run(:before_fork)
        tell(loaded: true)
        serve
        0
      rescue Chaton::Error => e
        refuse(e.message)
      end

      # Tells the supervisor that there will be no new generation.
      #
      # @param reason [String]
      # @return [Integer] exit status
      def refuse(reason)
        @log.error("mold cannot serve", generation: @generation, reason: reason)
        tell(failed: reason)
        1
      end

      private

      def kit
        raise ConfigError, "preload is off in the new configuration; restart in full (SIGUSR2)" unless @plan.preload?

        listeners = Listeners.new(@plan.binds, log: @log)
        listeners.inherit
        Worker::Kit.new(plan: @plan, loaded: true, app: Preload.new(@plan, log: @log).load,
                        sockets: listeners.sockets.values, board: map(@board_fd) { |fd| Native::Scoreboard.open(fd) },
                        ledger: @ledger_fd && map(@ledger_fd) { |fd| Ledger.open(fd) }, log: @log)
      end

      # The mapping stays when its descriptor is closed, which workers and what they start must not inherit.
      def map(descriptor)
        yield(descriptor).tap { IO.for_fd(descriptor).close }
      end

      # Ends with the supervisor: its end of the socket is closed then.
      def serve
        loop do
          bytes, _address, _flags, *controls = @socket.recvmsg(Mold::MESSAGE_BYTES_MAX, scm_rights: true)
          return if bytes.nil? || bytes.empty?

          leash = controls.flat_map { |control| control.unix_rights || [] }.first
          fork_twice(JSON.parse(bytes, symbolize_names: true), leash)
          leash.close
        end
      end

      # The process in between reports the pid and leaves; by then the kernel
      # gives the worker to the supervisor. The report precedes the worker's
      # death on the supervisor's side, because an orphan is handed over only
      # when the process in between has gone.
      def fork_twice(message, leash)
        between = fork do
          pid = fork { live(message, leash) }
          tell(forked: message.fetch(:fork), pid: pid)
          exit!(0)
        end
        Process.wait(between)
      end

      def live(message, leash)
        @socket.close
        leash.autoclose = false
        Worker.live(@kit, index: message.fetch(:index), slot: message.fetch(:slot), generation: @generation,
                          leash: UNIXSocket.for_fd(leash.fileno))
      end

      def tell(**message)
        @socket.sendmsg(JSON.generate(message))
      rescue SystemCallError
        # The supervisor has gone; the closed socket ends us.
        nil
      end
    end
  end
end
