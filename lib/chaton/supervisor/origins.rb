# frozen_string_literal: true

require_relative "mold"
require_relative "own_fork"

module Chaton
  class Supervisor
    # Where workers come from, generation by generation: this process itself for
    # the code it has preloaded (and whenever workers load their own), a mold
    # for code that came later. At most one mold is in use; while a phased
    # restart runs, the old one waits beside the new one until it is clear which
    # stays. A source of the event loop.
    class Origins
      # @param plan [Chaton::Config::Plan]
      # @param relaunch [Relaunch]
      # @param log [Telemetry::Log]
      # @param in_child [Proc] see {OwnFork#initialize}
      def initialize(plan, relaunch, log:, in_child:)
        @plan = plan
        @relaunch = relaunch
        @log = log
        @in_child = in_child
        @generation = 0
        @molds = []
      end

      # @return [OwnFork] generation 0
      def first
        OwnFork.new(&@in_child)
      end

      # The origin of the next generation.
      #
      # @param sockets [Hash{String=>IO}]
      # @param memory [Hash{Symbol=>Native::Scoreboard, Native::InFlightTable, nil}] what processes share: board and ledger
      # @yield [child, reason] a worker that will never be forked
      # @return [Mold, OwnFork]
      def next(sockets, memory, &missed)
        @generation += 1
        return OwnFork.new(generation: @generation, &@in_child) unless @plan.preload?

        mold = Mold.new(@relaunch, generation: @generation, sockets: sockets, memory: memory,
                                   load_timeout_s: @plan.boot_timeout_s, log: @log, &missed)
        @molds << mold
        mold.start
      end

      # @return [Boolean] whether a mold's process may still exist
      def alive?
        @molds.any?(&:alive?)
      end

      # @return [Array<Integer>] of molds
      def pids = @molds.map(&:pid).compact

      # @return [Array<IO>]
      def ios
        @molds.flat_map(&:ios)
      end

      # @return [void]
      def readable(io)
        @molds.find { |mold| mold.ios.include?(io) }&.readable
      end

      # @return [Float, nil]
      def due_at
        @molds.map(&:due_at).compact.min
      end

      # @return [void]
      def tick(now_s)
        @molds.each { |mold| mold.tick(now_s) }
      end

      # Takes in all messages at once: before processes are reaped, so that the
      # pid of a worker that died early is known by then.
      #
      # @return [void]
      def read_all
        @molds.each(&:readable)
      end

      # A process has ended.
      #
      # @param pid [Integer]
      # @param how [String]
      # @return [Boolean] whether it was a mold
      def ended(pid, how)
        found = @molds.any? { |mold| mold.ended(pid, how) }
        @molds.reject! { |mold| mold.retired? && !mold.alive? }
        found
      end

      # Dismisses every mold.
      #
      # @return [void]
      def retire
        @molds.each(&:retire)
      end

      # Closes what belongs to the supervisor; in a forked child.
      #
      # @return [void]
      def let_go
        @molds.each(&:let_go)
      end
    end
  end
end
