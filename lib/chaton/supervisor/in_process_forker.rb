# frozen_string_literal: true

require_relative "../worker/forked_child"
require_relative "event_loop"

module Chaton
  class Supervisor
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
