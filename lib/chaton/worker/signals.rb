# frozen_string_literal: true

module Chaton
  class Worker
    # Turns signals into entries of a queue that an event loop reads: a trap
    # handler runs between any two instructions, so it does nothing but note
    # the signal and wake the loop through a pipe. A source of the event loop
    # when it is given a block.
    class Signals
      # @return [IO] readable while signals wait to be taken
      attr_reader :io

      # @param names [Array<String>] signals to take, without "SIG"
      # @param ignored [Array<String>] signals to ignore
      # @param inherited [Signals, nil] the parent's, in a forked child: what was
      #   sent to *this* process before it had traps of its own is kept
      # @yieldparam name [String] a signal, taken by the event loop
      def initialize(names, ignored: [], inherited: nil, &handler)
        @handler = handler
        @io, @wake = IO.pipe
        @queue = []
        names.each { |name| trap(name) { push(name) } }
        ignored.each { |name| trap(name, "IGNORE") }
        take_over(inherited) if inherited
      end

      # Notes a signal as if it had been sent to this process. May be called
      # from a trap and from any thread.
      #
      # @param name [String]
      # @return [void]
      def push(name)
        # The pid tells the entries of a parent from those of its forked child,
        # which runs with a copy of this queue until it has its own.
        @queue << [Process.pid, name]
        wake
      end

      # @return [Array<String>] what has arrived since the last call, in order
      def take
        @io.read_nonblock(4096, exception: false)
        taken = []
        while (entry = @queue.shift)
          taken << entry.last
        end
        taken
      end

      # @return [Array<IO>]
      def ios
        [@io]
      end

      # @return [void]
      def readable(_io)
        take.each(&@handler)
      end

      # @return [nil] it waits for nothing but signals
      def due_at
        nil
      end

      # @return [void]
      def tick(_now_s); end

      # @api private
      # @param pid [Integer]
      # @return [Array<Array(Integer, String)>] process and signal, of those that came for it
      def sent_to(pid)
        @queue.select { |target, _| target == pid }
      end

      # Closes the pipe; the traps stay as they are.
      #
      # @return [void]
      def close
        @io.close
        @wake.close
      end

      private

      # After the traps are set: nothing can slip between the two queues.
      def take_over(inherited)
        @queue.unshift(*inherited.sent_to(Process.pid))
        inherited.close
        wake unless @queue.empty?
      end

      def wake
        @wake.write_nonblock(".", exception: false)
      rescue IOError, Errno::EPIPE
        # Closed by a process that is about to leave.
        nil
      end
    end
  end
end
