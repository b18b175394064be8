# frozen_string_literal: true

module Chaton
  class Worker
    # Frees the children that the application forks from what they inherit. The traps of the worker only write to its
    # pipe: nobody would read it, and the child could not be ended by TERM. A listening socket would keep its port taken
    # after the server has gone.
    module ForkedChild
      # What the process has that the application forks from.
      Inherited = Struct.new(:signals, :queue, :close)

      # Call in a process that forks no workers.
      #
      # @param signals [Array<String>] those with a trap, without "SIG"
      # @param queue [SignalQueue] that the traps write to
      # @yield closes the listening sockets, in the child
      def self.prepare(signals, queue, &close)
        @inherited = Inherited.new(signals, queue, close)
        Process.singleton_class.prepend(self)
      end

      # @api private
      def self.begin
        inherited, @inherited = @inherited, nil
        return unless inherited

        inherited.signals.each { |name| trap(name, "DEFAULT") }
        inherited.queue.close
        inherited.close.call
      end

      # Ruby calls this for each `fork`, in the parent and in the child.
      def _fork
        super.tap { |pid| ForkedChild.begin if pid.zero? }
      end
    end
  end
end
