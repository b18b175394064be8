# frozen_string_literal: true

module Chaton
  class CLI
    module Streams
      # Writes many records; some are in flight while the next ones are read.
      class RecordWriter
        # Records under one receipt.
        BATCH = 500
        # Receipts that may be in flight.
        IN_FLIGHT_MAX = 8

        # @return [Integer] records that are durable
        attr_reader :count
        # @return [Integer, nil] partition of the last one
        attr_reader :partition
        # @return [Integer, nil] its offset there
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

        # Writes records, and waits for earlier ones.
        #
        # @param records [Array<Array>] as `produce_many` takes them
        # @raise [StreamError] when one did not become durable
        def write(records)
          confirm(*@receipts.shift) if @receipts.size >= IN_FLIGHT_MAX
          @receipts << [@client.produce_many(records, @room_s), records.size]
        end

        # Waits until all are durable.
        #
        # @raise [StreamError] when one did not
        def finish
          confirm(*@receipts.shift) until @receipts.empty?
        end

        private

        def confirm(receipt, records)
          unless receipt.wait(wait_s)
            raise StreamUnavailable, "#{@client.address} has not confirmed #{records} records within #{wait_s.round} s"
          end

          @count += records
          @partition, @offset = receipt.partition, receipt.offset
        end

        # A record fails by itself after its delivery time; the rest is time for the report.
        def wait_s = @delivery_s + @room_s
      end
    end
  end
end
