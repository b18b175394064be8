# frozen_string_literal: true

module Chaton
  class Worker
    # Frees the children that the application forks from what they inherit. The traps of our processes only write to a
    # pipe: nobody would read it, and the child could not be ended by TERM. A listening socket would keep its port taken
    # after the server has gone, and the pipe of the admin endpoint its process alive.
    module ForkedChild
      # What the process has that the application forks from.
      Inherited = Struct.new(:signals, :close)

      # Call in a process that runs code of the application.
      #
      # @param signals [Array<String>] those with a trap, without "SIG"
      # @yield closes descriptors, in the child
      def self.prepare(signals, &close)
        @inherited = Inherited.new(signals, close)
        @ours = false
        Process.singleton_class.prepend(self)
      end

      # Forks one of our own processes in the block, which closes by itself what it does not need.
      def self.ours
        @ours = true
        yield
      ensure
        @ours = false
      end

      # @api private
      def self.begin
        return if @ours

        inherited, @inherited = @inherited, nil
        return unless inherited

        inherited.signals.each { |name| trap(name, "DEFAULT") }
        inherited.close.call
      end

      # Ruby calls this for each `fork`, in the parent and in the child.
      def _fork
        super.tap { |pid| ForkedChild.begin if pid.zero? }
      end
    end
  end
end
