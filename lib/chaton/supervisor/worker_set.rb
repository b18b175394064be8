# frozen_string_literal: true

require_relative "child"
require_relative "event_loop"
require_relative "restart_policy"
require_relative "worker_channel"
require_relative "worker_report"

module Chaton
  class Supervisor
    # All workers: starts them, reads their channels, notices their deaths and starts replacements. A source of the
    # event loop.
    class WorkerSet
      # Workers that TTIN may add to those of the configuration.
      EXTRA_WORKERS_MAX = 16
      # How a worker ended whose status nobody here has seen.
      REAPED_ELSEWHERE = "unknown: a hook has waited for it"
      # Ends that nobody asked for; the last few of them are kept for the dashboard.
      DEATHS = %i[died hung killed boot].freeze
      DEATHS_MAX = 10
      # Characters of what a worker said before it ended.
      DEATH_REASON_MAX = 500

      attr_reader :worker_slots
      # @return [Array<Child>] all that are not dead
      attr_reader :children
      # @return [Hash{Symbol=>Integer}] workers that have ended, by reason
      attr_reader :exits
      # @return [Array<Hash{Symbol=>Object}>] the last ends that nobody asked for: when and how; the latest one last
      attr_reader :deaths
      # @return [Preloader, InProcessForker] forks the workers of new slots
      attr_accessor :forker

      # @return [Integer] rows that the scoreboard needs: every worker may overlap with its successor
      def self.scoreboard_slots(workers) = 2 * (workers + EXTRA_WORKERS_MAX)

      # @param forker [Preloader, InProcessForker] responds to `generation`, `fork_worker(child, channel_end)`, `kill`
      # @param job_recovery [JobRecovery, nil] nil without the role jobs
      # @param batch_deaths [BatchDeaths, nil] nil without the role streams
      def initialize(plan, forker:, scoreboard:, log:, job_recovery: nil, batch_deaths: nil)
        @plan = plan
        @forker = forker
        @scoreboard = scoreboard
        @job_recovery = job_recovery
        @batch_deaths = batch_deaths
        @report = WorkerReport.new(log, compacted: plan.preload? && plan.memory.compact)
        @worker_slots = []
        @children = []
        @free_scoreboard_slots = (0...self.class.scoreboard_slots(plan.workers)).to_a
        @stopping = false
        @exits = { asked: 0, restart: 0, memory: 0, died: 0, hung: 0, killed: 0, boot: 0 }
        @deaths = []
      end

      def ios = @children.map { |child| child.channel.io }.reject(&:closed?)

      def writers = @children.map(&:channel).select(&:unsent?).map(&:io)

      def readable(io)
        child = child_at(io)
        return unless child&.read_channel(EventLoop.now_s)

        worker_slot_of(child)&.ready
        @report.ready(child)
        @job_recovery&.deliver(@children)
      end

      # Sends what waits for a worker whose channel takes bytes again.
      # @param io [IO] the worker's channel
      def writable(io) = child_at(io)&.channel&.flush

      def due_at
        dues = @children.map(&:due_at)
        dues.concat(@worker_slots.map(&:due_at)) if starting?
        dues.compact.reject(&:infinite?).min
      end

      # Starts the children that are due, pings, and kills those that have exceeded a time limit.
      def tick(now_s)
        @children.dup.each { |child| check(child, now_s) }
        @worker_slots.each { |slot| start(slot, slot.forker, :child=) if starting? && slot.due?(now_s) }
      end

      # @param count [Integer] workers to have
      def open(count) = count.times { add_worker_slot }

      # Adds a worker.
      #
      # @return [Boolean] false at the limit
      def grow
        return false if !room? || @worker_slots.size >= @plan.workers + EXTRA_WORKERS_MAX

        add_worker_slot
        true
      end

      # Drains one worker for good: of those with the roles of the first one, the one with the highest number.
      #
      # @return [Boolean] false when only one is left
      def shrink
        alike = @worker_slots.select { |slot| @plan.roles_of(slot.index) == @plan.roles_of(0) }
        return false if alike.size <= 1

        slot = @worker_slots.delete(alike.max_by(&:index))
        now_s = EventLoop.now_s
        [slot.child, slot.successor].compact.each { |child| child.stop(now_s) }
        true
      end

      # @return [Child] the successor in this slot
      def start_successor(slot, forker) = start(slot, forker, :successor=)

      # @return [Boolean] whether its child has to be gone before the successor starts
      def retires_first?(slot) = @plan.retires_first?(slot.index)

      # @return [Boolean] whether compaction may have crashed a worker
      def compaction_suspected? = @report.compaction_suspected

      # @return [Boolean] whether one more process may exist
      def room? = !@free_scoreboard_slots.empty?

      # Ends all workers; none is started again.
      #
      # @param at_once [Boolean] without letting them finish
      def stop(at_once: false)
        @stopping = true
        now_s = EventLoop.now_s
        @children.each { |child| at_once ? child.stop_now(now_s) : child.stop(now_s) }
      end

      # The work that a worker runs is the reason why it will be ended, and is counted.
      def blame_work(child, cause)
        child.blame_work(cause)
        @job_recovery&.keep(child)
        @batch_deaths&.worker_blamed(child, cause)
      end

      # @param name [String] a signal for every worker
      def signal(name) = @children.each { |child| child.signal(name) }

      # A process has ended.
      def ended(pid, status)
        child = @children.find { |one| one.pid == pid }
        remove(child, WorkerReport.describe(status), cause: WorkerReport.cause(status)) if child
        !child.nil?
      end

      # A child will never be forked.
      #
      # @param refused [Boolean] whether the system refused it, for a time
      def fork_failed(child, reason, refused: false)
        return if child.dead?

        child.refuse(reason) if refused
        remove(child, reason)
      end

      # @return [Boolean] whether no worker serves and none will be started
      def all_given_up? = @children.empty? && !@worker_slots.empty? && @worker_slots.all?(&:given_up)

      # @return [Boolean] whether every slot has a ready worker or was given up, and one worker is ready
      def complete?
        @worker_slots.any? { |slot| slot.child&.ready? } &&
          @worker_slots.all? { |slot| slot.child&.ready? || slot.given_up }
      end

      # Closes the supervisor's descriptors in a forked child.
      def close_in_child = @children.each { |child| child.channel.close }

      private

      def add_worker_slot
        # A worker that is exiting keeps its number until it is gone: the number may be part of a name in a consumer
        # group that two processes must not have.
        taken = [*@worker_slots, *@children].map(&:index)
        index = (0..taken.size).find { |number| !taken.include?(number) }
        policy = RestartPolicy.new(delay_s: @plan.restart_delay_s, delay_max_s: @plan.restart_delay_max_s,
                                   count: @plan.crash_loop_count, window_s: @plan.crash_loop_window_s)
        @worker_slots << WorkerSlot.new(index, forker: @forker, policy: policy, now_s: EventLoop.now_s)
      end

      def starting? = !@stopping && room?

      # The slot gets its child before anything that the system may refuse, so that a refusal is that child's end.
      def start(slot, forker, as)
        child = Child.new(@plan, index: slot.index, scoreboard: @scoreboard,
                                 scoreboard_slot: @free_scoreboard_slots.shift, forker: forker,
                                 now_s: EventLoop.now_s)
        @children << child
        slot.public_send(as, child)
        child.channel, theirs = WorkerChannel.pair
        forker.fork_worker(child, theirs)
        child
      rescue SystemCallError => e
        fork_failed(child, "fork failed: #{e.message}", refused: true)
        child
      end

      def check(child, now_s)
        child.tick(now_s)
        return unless (reason = child.kill_reason(now_s))

        @report.killed(child, reason)
        blame_work(child, child.silence) if child.ready?
        remove(child, REAPED_ELSEWHERE) unless child.kill
      end

      def remove(child, how, cause: nil)
        now_s = EventLoop.now_s
        # The reason it gave may still be unread.
        child.read_channel(now_s) unless child.channel.closed?
        asked = child.stopping?
        @exits[child.end_reason] += 1
        note_death(child, how)
        cause &&= child.death_cause(cause)
        child.ended(now_s)
        @children.delete(child)
        # Before another child gets its row.
        @job_recovery&.worker_ended(child, cause, @children)
        @batch_deaths&.worker_ended(child, cause)
        @scoreboard.clear(child.scoreboard_slot)
        @free_scoreboard_slots.push(child.scoreboard_slot)
        verdict = worker_slot_of(child)&.child_ended(child, now_s, clean: how == "exit 0")
        @report.ended(child, how, asked, verdict)
      end

      def note_death(child, how)
        return unless DEATHS.include?(child.end_reason)

        @deaths << { worker: child.index, pid: child.pid, at: Time.now.to_f.round(3), end: child.end_reason, how: how,
                     reason: child.reason&.slice(0, DEATH_REASON_MAX) }
        @deaths.shift if @deaths.size > DEATHS_MAX
      end

      def child_at(io) = @children.find { |one| one.channel.io.equal?(io) }

      def worker_slot_of(child)
        @worker_slots.find { |slot| slot.child.equal?(child) || slot.successor.equal?(child) }
      end
    end

    # A worker's number and the processes that have it: the child, during a phased restart or while it is recycled also
    # its successor, and the time at which the next one is due.
    class WorkerSlot
      attr_reader :index
      # @return [Child, nil] the one that serves
      attr_reader :child
      # @return [Child, nil] the one that takes over once it is ready
      attr_reader :successor
      # @return [Preloader, InProcessForker] forks the next child
      attr_accessor :forker
      # @return [Float, nil] when the next child is due (monotonic s)
      attr_reader :due_at
      # @return [String, nil] why no further child is started
      attr_reader :given_up

      def initialize(index, forker:, policy:, now_s:)
        @index = index
        @forker = forker
        @policy = policy
        @due_at = now_s
      end

      # @param child [Child, nil] the process that has the number now
      def child=(child)
        @child = child
        @due_at = nil
      end

      # @param child [Child, nil] the process that takes the number over when it is ready
      def successor=(child)
        @successor = child
        @due_at = nil
      end

      # Makes the successor the child.
      #
      # @return [Child, nil] the child it replaces, to be stopped
      def promote
        replaced = @child
        @child = @successor
        @successor = nil
        @forker = @child.forker
        @given_up = nil
        replaced
      end

      # Removes the child, which is asked to exit: its end does not count as a death, and no child follows until
      # {#refill}.
      def vacate
        @child = nil
        @due_at = nil
      end

      # Makes the next child due, unless there is one already.
      def refill(now_s)
        @due_at ||= now_s if @child.nil? && @successor.nil? && !@given_up
      end

      # The child is ready.
      def ready = @policy.ready

      # A child of this slot ended; decides what follows.
      #
      # @param clean [Boolean] whether it ended with status 0
      # @return [RestartPolicy::RestartAfter, RestartPolicy::GiveUp, nil] nil: nothing follows
      def child_ended(child, now_s, clean: false)
        if child.equal?(@successor)
          @successor = nil
          # The child that was to be replaced may have died in the meantime.
          @due_at = now_s if @child.nil? && !@given_up
          return
        end
        return unless child.equal?(@child)

        @child = nil
        follow(verdict(child, now_s, clean), child, now_s)
      end

      def due?(now_s) = !@due_at.nil? && now_s >= @due_at

      private

      def verdict(child, now_s, clean)
        return @policy.refused if child.refused?

        child.served? ? @policy.died(now_s, clean: clean) : @policy.boot_failed
      end

      def follow(verdict, child, now_s)
        # The successor is the replacement.
        return if @successor

        if verdict.is_a?(RestartPolicy::GiveUp)
          @given_up = child.reason || "it ended before it was ready"
        else
          @due_at = now_s + verdict.delay_s
        end
        verdict
      end
    end
  end
end
