# frozen_string_literal: true

module Chaton
  class Supervisor
    # One thread waiting for everything at once: no polling, no second thread.
    #
    # A *source* answers
    # - `ios` → what to watch for reading,
    # - `readable(io)` → called when one of them is,
    # - `due_at` → the next moment (monotonic s) it wants a turn, nil for none,
    # - `tick(now_s)` → its turn; called after every wake-up and must clear what
    #   made `due_at` lie in the past, or the loop would spin.
    # Optionally `writers` → what to watch for writing, with `writable(io)`.
    class EventLoop
      # @return [Float] seconds of the monotonic clock
      def self.now_s
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      # @param sources [Array<Object>] in the order they get their turn
      def initialize(sources)
        @sources = sources
      end

      # Waits for the next event or due moment and serves all that is ready.
      #
      # @return [void]
      def turn
        readers = watched(:ios)
        writers = watched(:writers)
        ready = IO.select(readers.keys, writers.keys, nil, timeout_s)
        if ready
          serve(ready[0], readers, :readable)
          serve(ready[1], writers, :writable)
        end
        now_s = self.class.now_s
        @sources.each { |source| source.tick(now_s) }
      end

      private

      def watched(kind)
        @sources.each_with_object({}.compare_by_identity) do |source, map|
          source.public_send(kind).each { |io| map[io] = source } if source.respond_to?(kind)
        end
      end

      def timeout_s
        due_at = @sources.map(&:due_at).compact.min
        due_at && [due_at - self.class.now_s, 0].max
      end

      def serve(ios, owners, action)
        # An earlier source of this turn may have closed a later one's IO.
        ios.each { |io| owners.fetch(io).public_send(action, io) unless io.closed? }
      end
    end
  end
end
