# frozen_string_literal: true

require "json"

module Chaton
  module Live
    # `Chaton.broadcast`.
    module Broadcasting
      # Sends a message to all event streams of a name, in whatever worker their connections are: it is added to a log
      # that all processes of the machine share, and that decides the order. Inside a transaction of ActiveRecord it is
      # sent once that is committed, and not at all if it is rolled back.
      #
      # @example
      #   Chaton.broadcast("orders/7", { state: "paid" })
      #   Chaton.broadcast("orders/7", "<b>paid</b>", event: "state", key: "paid-7")
      # @param name [String, Symbol] at most 255 bytes without CR, LF and NUL
      # @param data [String, Hash, Array, Object] what is no String is written as JSON
      # @param event [String, Symbol, nil] the type for which the browser listens; nil: `message`
      # @param key [String, Symbol, Integer, nil] a second message of the same name and key is ignored as long as the
      #   first is in the log
      # @return [Boolean, nil] whether it was added; false: there is one with this key. nil: it waits for a commit
      # @raise [ArgumentError] for a name, an event or a key that cannot be sent, or data that is not UTF-8
      # @raise [StoreError] when the log cannot be written
      def broadcast(name, data, event: nil, key: nil)
        message = [name.to_s, data.is_a?(String) ? data : JSON.generate(data), event&.to_s, key&.to_s]
        AfterCommit.run { Live.client.append(*message) }
      end
    end
  end
end
