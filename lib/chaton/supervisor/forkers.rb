# frozen_string_literal: true

require_relative "../worker/forked_child"
require_relative "event_loop"
require_relative "preloader"

module Chaton
  class Supervisor
    # Makes the forker of each generation of the code: a preloader, or without preload the supervisor itself. At most
    # one preloader is in use; during a phased restart the old one stays until it is clear which of the two is kept. A
    # source of the event loop.
    class Forkers
      # @return [Boolean] whether the next generations may compact the heap
      attr_accessor :compact

      # @param sockets [Hash{String=>IO}] listening sockets by bind, as {Listeners} fills it
      # @param in_child [Proc] see {InProcessForker#initialize}
      # @yield [child, reason, refused:] a worker that will never be forked
      def initialize(plan, launch_command, sockets:, memory:, log:, in_child:, &fork_failed)
        @plan = plan
        @launch_command = launch_command
        @sockets = sockets
        @memory = memory
        @log = log
        @in_child = in_child
        @fork_failed = fork_failed
        @generation = -1
        @compact = true
        @preloaders = []
      end

      # The forker of the next generation, which has not been started.
      def next
        @generation += 1
        return InProcessForker.new(generation: @generation, &@in_child) unless @plan.preload?

        preloader = Preloader.new(@launch_command, generation: @generation, sockets: @sockets, memory: @memory,
                                                   load_timeout_s: @plan.boot_timeout_s, compact: @compact,
                                                   log: @log, &@fork_failed)
        @preloaders << preloader
        preloader
      end

      # Has preloaders open output files and read the files of certificates again.
      def reload = @preloaders.each(&:reload)

      # @return [Boolean] whether a preloader's process may still exist
      def alive? = @preloaders.any?(&:alive?)

      # @return [Array<Integer>] of preloaders
      def pids = @preloaders.map(&:pid).compact

      def ios = @preloaders.flat_map(&:ios)

      def readable(io) = @preloaders.find { |preloader| preloader.ios.include?(io) }&.readable

      def due_at = @preloaders.map(&:due_at).compact.min

      def tick(now_s) = @preloaders.each { |preloader| preloader.tick(now_s) }

      # Reads all messages. Called before processes are reaped, so that the pid of a worker that died early is known.
      def read_all = @preloaders.each(&:readable)

      # A process has ended.
      def ended(pid, how)
        found = @preloaders.any? { |preloader| preloader.ended(pid, how) }
        @preloaders.reject! { |preloader| preloader.retired? && !preloader.alive? }
        found
      end

      # Ends every preloader.
      #
      # @param workers [Boolean] whether there are workers, whose ends those that are ready will publish
      def retire(workers:) = @preloaders.each { |preloader| preloader.retire unless workers && preloader.ready? }

      # Ends every preloader of a server that does not start.
      def abort = @preloaders.each(&:abort)

      # Closes the supervisor's descriptors in a forked child.
      def close_in_child = @preloaders.each(&:close_in_child)
    end

    # Forks workers from the supervisor itself, where each of them loads the code. It has the interface of {Preloader}.
    class InProcessForker
      # @return [Integer] 0 for the workers of the boot
      attr_reader :generation

      # @yield runs in the forked child, gets the {Child} and its end of the channel, and never returns
      def initialize(generation: 0, &in_child)
        @generation = generation
        @in_child = in_child
      end

      # @param theirs [UNIXSocket] the worker's end of the channel
      # @raise [SystemCallError] when the system refuses the fork
      def fork_worker(child, theirs)
        pid = Worker::ForkedChild.ours { fork { @in_child.call(child, theirs) } }
        child.forked(pid, EventLoop.now_s)
      ensure
        theirs.close
      end

      # There is nothing to load.
      def start = self

      def ready? = true

      def dead? = false

      def reason = nil

      def pool_size = nil

      def kill; end

      def retire; end

      # The application, whose subscribers would be told, is not loaded here.
      def worker_ended(_payload); end
    end
  end
end
