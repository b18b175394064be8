# frozen_string_literal: true

module Chaton
  class CLI
    module Streams
      # Writes many records, some of them on their way while the next ones are read.
      class Writing
        # Records under one receipt.
        BATCH = 500
        # Receipts that are waited for at once.
        ON_THEIR_WAY_MAX = 8

        # @return [Integer] records that are durable
        attr_reader :count
        # @return [Integer, nil] partition of the last one
        attr_reader :partition
        # @return [Integer, nil] its number there
        attr_reader :offset

        # @param room_s [Float] longest wait for room in the buffer
        # @param delivery_s [Float] time a record has to become durable
        def initialize(client, room_s:, delivery_s:)
          @client = client
          @room_s = room_s
          @delivery_s = delivery_s
          @count = 0
          @receipts = []
        end

        # Hands records over, and waits for earlier ones.
        #
        # @param records [Array<Array>] as `produce_many` takes them
        # @raise [LogError] when one did not become durable
        def write(records)
          settle(*@receipts.shift) if @receipts.size >= ON_THEIR_WAY_MAX
          @receipts << [@client.produce_many(records, @room_s), records.size]
        end

        # Waits until all are durable.
        #
        # @raise [LogError] when one did not become so
        def finish
          settle(*@receipts.shift) until @receipts.empty?
        end

        private

        def settle(receipt, records)
          unless receipt.wait(patience_s)
            raise LogUnavailable, "#{@client.address} has not confirmed #{records} records within #{patience_s.round} s"
          end

          @count += records
          @partition, @offset = receipt.partition, receipt.offset
        end

        # A record fails by itself when its time is up; this is for its report to arrive.
        def patience_s = @delivery_s + @room_s
      end
    end
  end
end
