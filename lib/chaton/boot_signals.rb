# frozen_string_literal: true

module Chaton
  # Remembers the signals that mean a command to a running server, from the first line of the program until the server
  # can carry them out. Their default actions would end or stop a server that is being started again, and its listening
  # sockets with it. TERM, INT and QUIT end the boot.
  module BootSignals
    NAMES = %w[USR1 USR2 HUP TTIN TTOU TSTP].freeze
    # They raise in the main thread.
    ENDS = %w[INT TERM QUIT].freeze
    # Nobody adds more workers than that with TTIN; of the others, one is enough.
    HELD_MAX = 64

    class << self
      # Begins to remember, once in a process.
      def hold
        return if @held

        # A trap may run once more when what follows it has begun: it must not find nil.
        held = @held = []
        NAMES.each { |name| trap(name) { held << name if held.size < HELD_MAX } }
      end

      # Gives them to the queue of the main process, which has set its traps. What it does not handle gets its default
      # action back.
      #
      # @param handled [Array<String>] the signals of the queue
      def pass_to(queue, handled)
        (NAMES - handled).each { |name| trap(name, "DEFAULT") }
        held, @held = @held, nil
        (held || []).each { |name| queue.push(name) if handled.include?(name) }
      end

      # Ends it for a command that is no server: the default actions follow.
      def release
        return unless @held

        NAMES.each { |name| trap(name, "DEFAULT") }
        held, @held = @held, nil
        held.uniq.each { |name| Process.kill(name, Process.pid) }
      end

      # Runs the block, behind which TERM, INT and QUIT that came meanwhile follow: one that raised between a fork and
      # the assignment of its pid would leave the child to itself.
      #
      # @yieldparam resume [Proc] to be called in a forked child
      def postpone_ends
        came = []
        before = ENDS.to_h { |name| [name, trap(name) { came << name } || "DEFAULT"] }
        resume = lambda do
          before.each { |name, action| trap(name, action) }
          came.uniq.each { |name| Process.kill(name, Process.pid) }
        end
        yield resume
      ensure
        resume&.call
      end

      # Call before this process executes the program again: an ignored signal stays ignored until {.hold}. None is
      # missed, because code, configuration and output files are read after it.
      def ignore
        NAMES.each { |name| trap(name, "IGNORE") }
        @held = nil
      end
    end
  end
end
