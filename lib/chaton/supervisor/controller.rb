# frozen_string_literal: true

require_relative "cluster_status"
require_relative "event_loop"
require_relative "phased_restart"
require_relative "signal_commands"

module Chaton
  class Supervisor
    # Carries out the commands to a supervised server, which come as signals or over the control socket, and keeps the
    # server's state:
    #
    #   starting → running → stopping | restarting
    #
    # A command returns nil when it has begun, or a sentence that says why it has not.
    class Controller
      include SignalCommands

      # @return [Symbol] :starting, :running, :stopping or :restarting
      attr_reader :state, :exit_status

      def initialize(plan, worker_set:, forkers:, scoreboard:, ceilings:, resources:, certificate_watch:, log:)
        @plan = plan
        @worker_set = worker_set
        @forkers = forkers
        @scoreboard = scoreboard
        @ceilings = ceilings
        @resources = resources
        @certificate_watch = certificate_watch
        @log = log
        @quiet_mode = QuietMode.new(worker_set)
        @status = ClusterStatus.new(plan, scoreboard, forkers, ceilings)
        @state = :starting
        @restart_again = false
        @exit_status = 0
      end

      # @return [Boolean] whether all processes have ended
      def done? = over? && @worker_set.children.empty? && !@forkers.alive? && !@resources.services.alive?

      def status
        restart = @phased_restart&.to_h&.merge(again: @restart_again)
        @status.to_h(state: @state, listen: @resources.listeners.addresses, worker_set: @worker_set, restart: restart)
          .merge(@resources.services.status, @resources.admin.status)
      end

      # @return [Hash{Symbol=>Object}] for the admin endpoint
      def report = @status.report(state: @state, worker_set: @worker_set)

      # Ends every worker without letting it finish, then exits.
      def stop_now
        wind_down(:stopping, at_once: true)
      end

      # Replaces the workers one by one by workers with the code that is on disk now. While that goes on, code on disk
      # may be newer than what was loaded, so another request is remembered, once, and carried out next.
      def phased_restart
        return "the server is stopping" if over?
        return remember_restart if @phased_restart&.running?

        @restart_again = false
        @resources.notify.reloading
        # New workers are meant to work.
        @quiet_mode.end
        @resources.services.restart
        target = @forkers.next.start
        @phased_restart = PhasedRestart.new(@worker_set, target, log: @log, first: @ceilings.method(:above_soft?)) do
          @resources.ready(**facts)
        end
        nil
      end

      # Replaces one worker by a new process with the same code.
      def restart_worker(index)
        return "the server is stopping" if over?
        return "a phased restart is replacing all workers" if @phased_restart&.running?

        @ceilings.replace(index)
      end

      # Workers stop accepting connections, keep serving the open ones, and take no more jobs and records.
      def quiet
        @log.info("quiet: workers take no new work")
        @quiet_mode.begin("USR1")
        nil
      end

      # Workers take no more jobs and records.
      def quiet_intake
        @log.info("quiet: workers take no more jobs and records")
        @quiet_mode.begin("TSTP")
        nil
      end

      # Sends workers a question of `chaton profile`, `chaton top` or the dashboard.
      #
      # @return [Array<Integer>] numbers of the workers that got it
      def ask(request)
        ready = @worker_set.children.select { |child| child.ready? && request.for?(child.index) }
        ready.select { |child| child.command(request.to_h) }.map(&:index)
      end

      # Adds a worker with the roles of the first one.
      def grow
        return if @worker_set.grow

        "no further worker: the limit is #{WorkerSet::EXTRA_WORKERS_MAX} above the configured number"
      end

      # Removes a worker.
      def shrink
        "the last worker stays; send TERM to stop the server" unless @worker_set.shrink
      end

      # Moves on after events; called after every turn of the event loop.
      def update
        keep_below_ceilings unless over?
        return retire_forkers if over?

        @quiet_mode.signal_new_workers
        load_without_compaction

        # A worker that is being recycled comes to its end before a phased restart goes on.
        @phased_restart&.tick(EventLoop.now_s) unless @ceilings.busy?
        phased_restart if @restart_again && !@phased_restart.running?
        return become_ready if @state == :starting && @worker_set.complete? && !@ceilings.pending?

        give_up("no worker could be started", @worker_set.worker_slots.first.given_up) if nothing_follows?
      end

      private

      def remember_restart
        @log.info("a phased restart is running; another one follows it") unless @restart_again
        @restart_again = true
        nil
      end

      def become_ready
        @state = :running
        @resources.ready(**facts)
        @resources.greet(@worker_set.forker.pool_size)
        @resources.hooks.run_all(:after_booted)
      end

      def accepting?
        @worker_set.children.any? { |child| @scoreboard.read(child.scoreboard_slot).fetch(:accepting, false) }
      end

      # A crashed worker's successors are forked from memory in which no object was moved.
      def load_without_compaction
        return if !@forkers.compact || !@worker_set.compaction_suspected? || @phased_restart&.running?

        @forkers.compact = false
        phased_restart
      end

      def nothing_follows? = @worker_set.all_given_up? && !@phased_restart&.running?

      def facts = { mode: "cluster", workers: @worker_set.worker_slots.size }

      def forward_hang_up
        @certificate_watch.reload
        @worker_set.signal("HUP")
        nil
      end

      def keep_below_ceilings
        @ceilings.update(EventLoop.now_s, starting: @state == :starting, held: @phased_restart&.running? || false)
        give_up("cannot start", @ceilings.refusal) if @state == :starting && @ceilings.refusal
      end

      def give_up(problem, reason)
        @resources.fatal_logs.each { |log| log.error("#{problem}; the server exits", reason: reason) }
        @exit_status = 1
        wind_down(:stopping)
      end

      def end_work(at_once:)
        @worker_set.stop(at_once: at_once)
        retire_forkers
      end

      def retire_forkers = @forkers.retire(workers: @worker_set.children.any?)
    end

    # Keeps workers from taking new work: signals all that are ready, and each that becomes ready later in place of one
    # that died or was replaced.
    class QuietMode
      def initialize(worker_set)
        @worker_set = worker_set
        @signals = []
        @sent = {}.compare_by_identity
      end

      # @param signal [String] which kinds of work are no longer taken: see {Worker}
      def begin(signal)
        @signals |= [signal]
        signal_new_workers
      end

      # Workers that become ready from now on take work. Those that are quiet stay so.
      def end
        @signals = []
      end

      # Sends the signals to every ready worker that has not got them.
      def signal_new_workers
        @sent.reject! { |child, _| child.dead? }
        @worker_set.children.select(&:ready?).each do |child|
          (@signals - @sent.fetch(child, [])).each { |signal| child.signal(signal) }
          @sent[child] = @sent.fetch(child, []) | @signals
        end
      end
    end
  end
end
