# frozen_string_literal: true

module Chaton
  class Worker
    # Gives signals their default meaning in the children that the application forks. Such a child inherits the traps of
    # the worker, which only write to the worker's pipe: nobody would read it, and the child could not be ended by TERM.
    module ForkedChild
      # The signals of the process that the application forks from.
      Inherited = Struct.new(:signals, :queue)

      # Call in a process that forks no workers.
      #
      # @param signals [Array<String>] those with a trap, without "SIG"
      # @param queue [SignalQueue] that the traps write to
      def self.reset_signals(signals, queue)
        @inherited = Inherited.new(signals, queue)
        Process.singleton_class.prepend(self)
      end

      # @api private
      def self.begin
        inherited, @inherited = @inherited, nil
        return unless inherited

        inherited.signals.each { |name| trap(name, "DEFAULT") }
        inherited.queue.close
      end

      # Ruby calls this for each `fork`, in the parent and in the child.
      def _fork
        super.tap { |pid| ForkedChild.begin if pid.zero? }
      end
    end
  end
end
