# frozen_string_literal: true

require_relative "dead_letters"

module Chaton
  class CLI
    module Streams
      # Sends dead letters back, and stores the progress once they are durable.
      class Replay
        # @return [Hash{String=>Integer}] records sent back, by topic
        attr_reader :sent

        # @param to [String, nil] a topic for all; nil: where each came from
        # @param timeouts [Hash{Symbol=>Float}] as {RecordWriter} takes it
        def initialize(client, admin, letters, to:, timeouts:)
          @client = client
          @admin = admin
          @letters = letters
          @to = to
          @room_s, @delivery_s = timeouts.values_at(:room_s, :delivery_s)
          @sent = Hash.new(0)
          @sizes = {}
        end

        # @yieldparam count [Integer] how many were sent back
        # @raise [StreamError] when one could not be sent; the progress up to it is stored
        def run(max)
          @letters.each_some(-> { [max - total, Cursor::BATCH].min }) do |number, some|
            send_back(number, some)
            yield total
            break if total >= max
          end
        end

        private

        def total = @sent.values.sum

        def send_back(number, letters)
          rows = rows(letters)
          receipt = @client.produce_many(rows, @room_s)
          failure = failure(receipt)
          store(number, letters.first(failure ? durable_count(receipt) : rows.size), rows)
          raise failure if failure
          raise @refused if @refused
        end

        # Rows up to the first dead letter that cannot be sent; its error is raised after those before it are sent.
        def rows(letters)
          @refused = nil
          letters.each_with_object([]) do |letter, rows|
            rows << row(letter)
          rescue StreamError => e
            raise if rows.empty?

            @refused = e
            break rows
          end
        end

        def row(letter)
          raise InvalidRecord, omitted(letter) if letter.value_omitted?

          topic = @to || letter.topic
          raise InvalidRecord, "#{letter.place} does not tell its topic; name one: --to TOPIC" unless topic

          size = @sizes[topic] ||= @admin.topic!(topic)["partitions"].size
          partition = letter.partition unless @to
          letter.to_row(topic, partition && partition < size ? partition : nil)
        end

        # Sent back, it would be a tombstone.
        def omitted(letter)
          record, cause = letter.record, letter.cause
          "#{letter.place} has no value: it was too large (#{cause[:source_value_bytes]} bytes). The record is at " \
            "#{cause[:source_topic]}/#{cause[:source_partition]} @#{cause[:source_offset]}. To go on behind it: " \
            "chaton streams seek chaton-dlq #{record.topic} --partition #{record.partition} --to #{record.offset + 1}"
        end

        def failure(receipt)
          wait_s = @delivery_s + @room_s
          return if receipt.wait(wait_s)

          StreamUnavailable.new("#{@client.address} has not confirmed the records within #{wait_s.round} s")
        rescue StreamError => e
          e
        end

        # How many, from the first on, are durable. Only the first failures are reported one by one.
        def durable_count(receipt)
          errors = receipt.errors.map(&:first)
          receipt.done? && errors.size == receipt.failed ? errors.min : 0
        end

        def store(number, letters, rows)
          return if letters.empty?

          @letters.done(number, letters.last.record.offset + 1)
          rows.first(letters.size).each { |row| @sent[row.first] += 1 }
        end
      end
    end
  end
end
