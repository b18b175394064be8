# frozen_string_literal: true

module Chaton
  module Streams
    # `Chaton.produce` and its sisters.
    module Producing
      # Hands a record over to be written, and returns before it is. Waits only while the buffer is full.
      #
      # @example
      #   Chaton.produce("events", { id: 7 }, key: "7")
      # @param topic [String, Symbol]
      # @param value [String, Hash, Array, nil] a Hash or an Array is written as JSON; nil is a tombstone
      # @param key [String, Symbol, Integer, nil] records of one key keep their order
      # @param headers [Hash{String=>String}, nil] an Array of values where a name comes several times
      # @param partition [Integer, nil] nil: by the key
      # @param timestamp [Time, Integer, nil] milliseconds since 1970; nil: now
      # @return [Native::Receipt] whose `wait` tells when it is durable
      # @raise [BufferFull] when there was no room for `produce_timeout_s`
      # @raise [UnknownTopic, InvalidRecord, LogRefused]
      # @raise [ConfigError] when no streams are configured
      def produce(topic, value, key: nil, headers: nil, partition: nil, timestamp: nil)
        client = Streams.client
        client.produce(topic.to_s, value, key, headers, partition, timestamp)
      rescue ForkedError
        # What was kept before the fork was for the first worker.
        Streams.renew(client).produce(topic.to_s, value, key, headers, partition, timestamp)
      end

      # Writes a record, and returns once it is durable.
      #
      # @param (see #produce)
      # @return [Native::Receipt] which knows the record's partition and offset
      # @raise [LogError] when it is not written, or not known to be
      def produce!(topic, value, **rest)
        receipt = produce(topic, value, **rest)
        Streams.client.wait(receipt)
      end

      # Hands many records over in one step.
      #
      # @example
      #   Chaton.produce_many("events", ["a", "b"])
      #   Chaton.produce_many("events", [{ value: { id: 7 }, key: "7" }])
      # @param topic [String, Symbol]
      # @param values [Array<String, Array, nil, Hash>] a Hash describes a record: value:, key:, headers:,
      #   partition:, timestamp:
      # @return [Native::Receipt] of all of them; what could not be taken has failed there, and the others are written
      # @raise [ArgumentError, TypeError] for what is no record
      def produce_many(topic, values)
        client = Streams.client
        client.produce_many(topic.to_s, values)
      rescue ForkedError
        Streams.renew(client).produce_many(topic.to_s, values)
      end
    end
  end
end
