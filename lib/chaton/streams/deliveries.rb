# frozen_string_literal: true

module Chaton
  module Streams
    # Follows what a consumer with `wait_for_deliveries` produces on its thread, so that its batch is not done before.
    class Deliveries
      KEY = :chaton_deliveries
      # Receipts that are kept; with more, `produce` waits for them.
      RECEIPTS_MAX = 1_000

      class << self
        # Runs the block, and waits until what it has produced is durable.
        #
        # @raise [StreamError] the first failure
        def follow
          thread = Thread.current
          thread.thread_variable_set(KEY, [])
          yield
          wait
        ensure
          thread.thread_variable_set(KEY, nil)
        end

        # Follows this receipt, if something on this thread waits for it later.
        def add(receipt)
          if (receipts = Thread.current.thread_variable_get(KEY))
            receipts << receipt
            wait if receipts.size >= RECEIPTS_MAX
          end
          receipt
        end

        # Waits until everything so far is durable.
        #
        # @raise [StreamError] the first failure
        def wait
          receipts = Thread.current.thread_variable_get(KEY) or return
          client = Streams.client
          client.wait(receipts.shift) until receipts.empty?
        end
      end
    end
  end
end
