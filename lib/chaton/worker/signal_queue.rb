# frozen_string_literal: true

module Chaton
  class Worker
    # Turns signals into entries of a queue that an event loop reads. A trap handler runs between any two instructions,
    # so it only records the signal and wakes the loop through a pipe. With a block it is a source of the event loop.
    class SignalQueue
      # @return [IO] readable while signals wait to be taken
      attr_reader :io

      # @param names [Array<String>] signals to queue, without "SIG"
      # @param ignored [Array<String>] signals to ignore
      # @param inherited [SignalQueue, nil] the parent's queue, in a forked child: signals that this process got before
      #   it had traps of its own are kept
      # @yieldparam name [String] a signal, on the event loop
      def initialize(names, ignored: [], inherited: nil, &handler)
        @handler = handler
        @io, @wake = IO.pipe
        @queue = []
        names.each { |name| trap(name) { push(name) } }
        # A program that the application starts inherits an ignored signal, but not a block. These two stay ignored, or
        # the kernel would send them again and again.
        ignored.each { |name| %w[TTIN TTOU].include?(name) ? trap(name, "IGNORE") : trap(name) { nil } }
        take_over(inherited) if inherited
      end

      # Queues a signal as if it had been sent to this process. May be called from a trap and from any thread.
      def push(name)
        # The pid tells a parent's entries from those of its forked child, which runs with a copy of this queue until
        # it has its own.
        @queue << [Process.pid, name]
        wake
      end

      # @return [Array<String>] the signals since the last call, in order
      def take
        @io.read_nonblock(4096, exception: false)
        taken = []
        while (entry = @queue.shift)
          taken << entry.last
        end
        taken
      end

      def ios = [@io]

      def readable(_io) = take.each(&@handler)

      def due_at = nil

      def tick(_now_s); end

      # @api private
      # @return [Array<Array(Integer, String)>] pid and signal of the entries for this process
      def sent_to(pid)
        @queue.select { |target, _| target == pid }
      end

      # Closes the pipe; the traps stay.
      def close
        @io.close
        @wake.close
      end

      private

      # Called after the traps are set, so that no signal is lost between the two queues.
      def take_over(inherited)
        @queue.unshift(*inherited.sent_to(Process.pid))
        inherited.close
        wake unless @queue.empty?
      end

      def wake
        @wake.write_nonblock(".", exception: false)
      rescue IOError, Errno::EPIPE
        # The process is exiting and has closed the pipe.
        nil
      end
    end
  end
end
