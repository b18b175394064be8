# frozen_string_literal: true

require "json"

module Chaton
  module Jobs
    # A job ready to be stored. Its document is written at once, so that it does not change with the caller's
    # objects during a transaction. Only `enqueued_at` is added when it is stored.
    class Push
      attr_reader :jid
      # @return [Array(String, String, Float), nil] see {Extra#apply}
      attr_reader :lock

      # @param item [Hash{String=>Object}] the document
      # @param bid [String, nil] the batch to count it in
      def initialize(item, at, lock, bid)
        @jid = item["jid"]
        @queue = item["queue"]
        @at = at
        @lock = lock
        @bid = bid
        @item = item
        @body = JSON.generate(item.except("at", "enqueued_at"), max_nesting: false)
      end

      # @return [Integer] bytes of its document
      def bytesize = @body.bytesize

      def drop_lock
        @lock = nil
      end

      # @return [Array] the arguments of the native client's `push`
      def to_a(format)
        # Middleware that has kept the Hash finds the time in it, as with Sidekiq.
        @item["enqueued_at"] = Clock.stamp(format) unless @at || waiting?
        payload = @at ? @body : "#{@body.chop},\"enqueued_at\":#{@item["enqueued_at"]}}"
        [@queue, payload, @at, @lock, @bid]
      end

      private

      # A job that waits behind a limit keeps its first time.
      def waiting?
        chaton = @item["chaton"]
        @item["enqueued_at"] && chaton.is_a?(Hash) && chaton["since"]
      end
    end
  end
end
