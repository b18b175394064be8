# frozen_string_literal: true

module Chaton
  class Supervisor
    # Waits for all sources on one thread, without polling.
    #
    # A *source* has these methods:
    # - `ios` → the IOs to watch for reading;
    # - `readable(io)` is called when one of them can be read;
    # - `due_at` → the next time (monotonic s) at which it wants a tick, nil for none;
    # - `tick(now_s)` is called after every wake-up. It must move a `due_at` that lies in the past, or the loop would
    #   spin;
    # - optionally `writers` → the IOs to watch for writing, with `writable(io)`.
    class EventLoop
      # @return [Float] seconds of the monotonic clock
      def self.now_s
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      # @param sources [Array<Object>] in the order in which they are called
      def initialize(sources)
        @sources = sources
      end

      # Waits for the next event or due time, and serves every source that is ready.
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
        # An earlier source may have closed a later one's IO in this turn.
        ios.each { |io| owners.fetch(io).public_send(action, io) unless io.closed? }
      end
    end
  end
end
