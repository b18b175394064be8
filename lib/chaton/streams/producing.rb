# frozen_string_literal: true

module Chaton
  module Streams
    # `Chaton.produce`, `Chaton.produce!` and `Chaton.produce_many`.
    module Producing
      # Puts a record into the producer's buffer, and returns before it is written. Waits only while the buffer is full.
      #
      # @example
      #   Chaton.produce("events", { id: 7 }, key: "7")
      # @param topic [String, Symbol]
      # @param value [String, Hash, Array, nil] a Hash or an Array is written as JSON; nil is a tombstone
      # @param key [String, Symbol, Integer, nil] records of one key keep their order
      # @param headers [Hash{String=>String}, nil] an Array of values where a name comes several times
      # @param partition [Integer, nil] nil: by the key
      # @param timestamp [Time, Integer, nil] milliseconds since 1970; nil: now
      # @param outbox [Boolean] whether to store it in the open transaction of the application, on the PostgreSQL of the
      #   jobs: its COMMIT stores the record with the application's own rows, and a worker hands it to the log, at least
      #   once, with the header `outbox-id`
      # @param connection [Object, nil] where that transaction is open: of the gem pg, or a database of Sequel; nil:
      #   ActiveRecord's
      # @return [Native::Receipt] `wait` returns when it is durable; nil inside {Chaton.transaction} and with `outbox`
      # @raise [BufferFull] when the buffer stays full for `produce_timeout_s`
      # @raise [UnknownTopic, InvalidRecord, StreamRefused]
      # @raise [ConfigError] when no streams are configured
      def produce(topic, value, key: nil, headers: nil, partition: nil, timestamp: nil, outbox: false, connection: nil)
        client = Streams.client
        if outbox
          record = { value: value, key: key, headers: headers, partition: partition, timestamp: timestamp }
          return client.outbox(topic.to_s, [record], connection)
        end
        client.produce(topic.to_s, value, key, headers, partition, timestamp)
      rescue ForkedError
        # The spool of the parent process is not this process's client.
        Streams.renew(client).produce(topic.to_s, value, key, headers, partition, timestamp)
      end

      # Writes a record, and returns once it is durable.
      #
      # @param (see #produce)
      # @return [Native::Receipt] which knows the record's partition and offset
      # @raise [StreamError] when it is not written, or that is unknown
      def produce!(topic, value, **rest)
        receipt = produce(topic, value, **rest)
        Streams.client.wait(receipt)
      end

      # Writes many records in one step.
      #
      # @example
      #   Chaton.produce_many("events", ["a", "b"])
      #   Chaton.produce_many("events", [{ value: { id: 7 }, key: "7" }])
      # @param topic [String, Symbol]
      # @param values [Array<String, Array, nil, Hash>] a Hash describes a record: value:, key:, headers:,
      #   partition:, timestamp:
      # @param outbox [Boolean] as of {#produce}
      # @param connection [Object, nil] as of {#produce}
      # @return [Native::Receipt] of all of them; a record that is refused fails there, and the others are written
      # @raise [ArgumentError, TypeError] for a value that cannot be written
      def produce_many(topic, values, outbox: false, connection: nil)
        client = Streams.client
        return client.outbox(topic.to_s, values, connection) if outbox

        client.produce_many(topic.to_s, values)
      rescue ForkedError
        Streams.renew(client).produce_many(topic.to_s, values)
      end
    end
  end
end
