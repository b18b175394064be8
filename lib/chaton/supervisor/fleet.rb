# frozen_string_literal: true

require_relative "child"
require_relative "event_loop"
require_relative "fleet_report"
require_relative "leash"
require_relative "seat"

module Chaton
  class Supervisor
    # All workers: starts them, hears them, notes their deaths and starts the
    # next ones. A source of the event loop.
    class Fleet
      # Workers that TTIN may add to those of the configuration.
      EXTRA_WORKERS_MAX = 16

      # @return [Array<Seat>]
      attr_reader :seats
      # @return [Array<Child>] everyone who is not dead
      attr_reader :children
      # @return [Object] who forks workers for new seats
      attr_accessor :origin

      # @param workers [Integer]
      # @return [Integer] places a board needs: every worker may overlap with its successor
      def self.slots(workers)
        2 * (workers + EXTRA_WORKERS_MAX)
      end

      # @param plan [Chaton::Config::Plan]
      # @param origin [Object] answers `generation`, `fork_worker(child, leash_end)`, `kill`
      # @param board [#read, #clear]
      # @param recovery [Recovery, nil] of the jobs of the dead; nil without the role jobs
      # @param log [Telemetry::Log]
      def initialize(plan, origin:, board:, log:, recovery: nil)
        @plan = plan
        @origin = origin
        @board = board
        @recovery = recovery
        @report = FleetReport.new(log, compacted: plan.memory.compact)
        @seats = []
        @children = []
        @slots_free = (0...self.class.slots(plan.workers)).to_a
        @stopping = false
      end

      # @return [Array<IO>]
      def ios
        @children.map { |child| child.leash.io }.reject(&:closed?)
      end

      # @return [Array<IO>]
      def writers
        @children.map(&:leash).select(&:unsent?).map(&:io)
      end

      # @return [void]
      def readable(io)
        child = child_at(io)
        return unless child&.hear(EventLoop.now_s)

        seat_of(child)&.ready
        @report.ready(child)
        @recovery&.hand_over(@children)
      end

      # @return [void]
      def writable(io)
        child_at(io)&.leash&.flush
      end

      # @return [Float, nil]
      def due_at
        dues = @children.map(&:due_at)
        dues.concat(@seats.map(&:due_at)) if starting?
        dues.compact.reject(&:infinite?).min
      end

      # Starts who is due, pings, and kills who has to be killed.
      #
      # @param now_s [Float]
      # @return [void]
      def tick(now_s)
        @children.dup.each { |child| look_after(child, now_s) }
        @seats.each { |seat| start(seat, seat.origin, :take) if starting? && seat.due?(now_s) }
      end

      # @param count [Integer] workers to have
      # @return [void]
      def open(count)
        count.times { add_seat }
      end

      # One worker more.
      #
      # @return [Boolean] false at the limit
      def grow
        return false if !room? || @seats.size >= @plan.workers + EXTRA_WORKERS_MAX

        add_seat
        true
      end

      # One worker less: of those that do what the first one does, the one with the highest number drains.
      #
      # @return [Boolean] false when only one is left
      def shrink
        alike = @seats.select { |seat| @plan.roles_of(seat.index) == @plan.roles_of(0) }
        return false if alike.size <= 1

        seat = @seats.delete(alike.max_by(&:index))
        now_s = EventLoop.now_s
        [seat.child, seat.successor].compact.each { |child| child.stop(now_s) }
        true
      end

      # Starts the one that is to take over a seat.
      #
      # @param seat [Seat]
      # @param origin [Object]
      # @return [Child]
      def start_successor(seat, origin)
        start(seat, origin, :await)
      end

      # @param seat [Seat]
      # @return [Boolean] whether its child has to be gone before the successor comes
      def retires_first?(seat) = @plan.retires_first?(seat.index)

      # @return [Boolean] whether the board has a place for one more process
      def room?
        !@slots_free.empty?
      end

      # Ends everyone; nobody is started again.
      #
      # @param at_once [Boolean] without letting them finish
      # @return [void]
      def stop(at_once: false)
        @stopping = true
        now_s = EventLoop.now_s
        @children.each { |child| at_once ? child.stop_now(now_s) : child.stop(now_s) }
      end

      # @param name [String] a signal for every worker
      # @return [void]
      def signal(name)
        @children.each { |child| child.signal(name) }
      end

      # A process has ended.
      #
      # @param pid [Integer]
      # @param status [Process::Status]
      # @return [Boolean] whether it was a worker
      def ended(pid, status)
        child = @children.find { |one| one.pid == pid }
        bury(child, FleetReport.describe(status), cause: FleetReport.cause(status)) if child
        !child.nil?
      end

      # A child will never exist, or is out of our sight.
      #
      # @param child [Child]
      # @param reason [String]
      # @return [void]
      def missed(child, reason)
        bury(child, reason) unless child.dead?
      end

      # @return [Boolean] whether nobody serves and nobody will
      def hopeless?
        @children.empty? && !@seats.empty? && @seats.all?(&:given_up)
      end

      # @return [Boolean] whether all who are going to be ready are
      def complete?
        @seats.any? { |seat| seat.child&.ready? } && @seats.all? { |seat| seat.child&.ready? || seat.given_up }
      end

      # Lets go of everything that belongs to the supervisor; in a forked child.
      #
      # @return [void]
      def let_go
        @children.each { |child| child.leash.close }
      end

      private

      def add_seat
        # Whoever leaves keeps its number until it is gone: it may be a name that two must not have.
        taken = [*@seats, *@children].map(&:index)
        index = (0..taken.size).find { |number| !taken.include?(number) }
        policy = RestartPolicy.new(delay_s: @plan.restart_delay_s, delay_max_s: @plan.restart_delay_max_s,
                                   count: @plan.crash_loop_count, window_s: @plan.crash_loop_window_s)
        @seats << Seat.new(index, origin: @origin, policy: policy, now_s: EventLoop.now_s)
      end

      def starting?
        !@stopping && room?
      end

      # The seat knows its child before the fork: a fork that fails is a death.
      def start(seat, origin, as)
        leash, theirs = Leash.pair
        child = Child.new(@plan, index: seat.index, slot: @slots_free.shift, origin: origin, leash: leash,
                                 now_s: EventLoop.now_s)
        @children << child
        seat.public_send(as, child)
        origin.fork_worker(child, theirs)
        child
      rescue SystemCallError => e
        missed(child, "fork failed: #{e.message}")
        child
      end

      def look_after(child, now_s)
        child.tick(now_s)
        return unless (fault = child.fault(now_s))

        @report.killed(child, fault)
        child.kill
      end

      def bury(child, how, cause: nil)
        now_s = EventLoop.now_s
        # The reason it gave may still lie in the socket.
        child.hear(now_s) unless child.leash.closed?
        asked = child.stopping?
        cause = nil if child.ended_by_us?
        child.died(now_s)
        @children.delete(child)
        # Before its place goes to another one.
        @recovery&.lost(child, cause, @children)
        @board.clear(child.slot)
        @slots_free.push(child.slot)
        verdict = seat_of(child)&.lost(child, now_s)
        @report.died(child, how, asked, verdict)
      end

      def child_at(io) = @children.find { |one| one.leash.io.equal?(io) }

      def seat_of(child)
        @seats.find { |seat| seat.child.equal?(child) || seat.successor.equal?(child) }
      end
    end
  end
end
