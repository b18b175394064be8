# frozen_string_literal: true

require_relative "event_loop"

module Chaton
  class Supervisor
    # The origin of workers that carry the code this process has loaded (or
    # none, when every worker loads its own): it forks them itself.
    class OwnFork
      # @return [Integer] 0 for the code loaded at boot
      attr_reader :generation

      # @param generation [Integer]
      # @yield runs in the forked child, is given the child and its end of
      #   the leash, and never returns
      def initialize(generation: 0, &in_child)
        @generation = generation
        @in_child = in_child
      end

      # @param child [Child]
      # @param theirs [UNIXSocket] the worker's end of the leash
      # @return [void]
      # @raise [SystemCallError] when the system refuses the fork
      def fork_worker(child, theirs)
        pid = fork { @in_child.call(child, theirs) }
        child.forked(pid, EventLoop.now_s)
      ensure
        theirs.close
      end

      # @return [Boolean] always: there is nothing to load
      def ready?
        true
      end

      # @return [Boolean] never
      def dead?
        false
      end

      # @return [nil] it cannot fail
      def reason
        nil
      end

      # @return [void]
      def kill; end

      # @return [void]
      def retire; end
    end
  end
end
