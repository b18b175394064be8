# frozen_string_literal: true

module Chaton
  module Jobs
    # The jobs that a `jobs` block of a batch enqueues. They are kept until the block's end and pushed together, so that
    # a block that fails has enqueued nothing, unless it made more of them than memory should hold.
    class BatchPushes
      # Jobs kept: as many as one push stores.
      JOBS_MAX = 1_000
      # Bytes of their documents.
      BYTES_MAX = 16 << 20

      attr_reader :bid

      # @param store [#call] stores an Array of {Push}
      def initialize(bid, store)
        @bid = bid
        @store = store
        @pushes = []
        @bytes = 0
      end

      # Keeps jobs; after the block's end they are pushed at once.
      #
      # @param pushes [Array<Push>]
      # @return [Array<Push>] those that are refused: none
      def add(pushes)
        return [] if given_up?

        @pushes.concat(pushes)
        @bytes += pushes.sum(&:bytesize)
        flush if @ended || @pushes.size >= JOBS_MAX || @bytes >= BYTES_MAX
        []
      end

      # Called at the end of the block.
      def finish
        @ended = true
        flush
      end

      # Called when the block has failed: what was kept, or waits for the end of a transaction, is not pushed.
      def give_up
        @given_up = true
        @pushes.clear
      end

      def given_up? = @given_up || false

      private

      def flush
        pushes, @pushes = @pushes, []
        @bytes = 0
        pushes.each_slice(JOBS_MAX) { |slice| @store.call(slice) }
      end
    end
  end
end
