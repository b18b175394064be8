# frozen_string_literal: true

require_relative "dead_letters"

module Chaton
  class CLI
    module Streams
      # Sends dead letters back, and notes how far it has come once they are durable there.
      class Replay
        # @return [Hash{String=>Integer}] records sent back, by topic
        attr_reader :sent

        # @param to [String, nil] a topic for all; nil: where each came from
        # @param patience [Hash{Symbol=>Float}] as {Writing} takes it
        def initialize(client, admin, letters, to:, patience:)
          @client = client
          @admin = admin
          @letters = letters
          @to = to
          @room_s, @delivery_s = patience.values_at(:room_s, :delivery_s)
          @sent = Hash.new(0)
          @sizes = {}
        end

        # @yieldparam count [Integer] how many were sent back so far
        # @raise [LogError] when one could not be; those before it are noted
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
          note(number, letters.first(failure ? unharmed(receipt) : rows.size), rows)
          raise failure if failure
          raise @refused if @refused
        end

        # Up to the first that nobody can send; it is told once those before it have gone.
        def rows(letters)
          @refused = nil
          letters.each_with_object([]) do |letter, rows|
            rows << row(letter)
          rescue LogError => e
            raise if rows.empty?

            @refused = e
            break rows
          end
        end

        def row(letter)
          topic = @to || letter.topic
          raise InvalidRecord, "#{letter.place} does not say where it came from; name a topic: --to TOPIC" unless topic

          size = @sizes[topic] ||= @admin.topic!(topic)["partitions"].size
          partition = letter.partition unless @to
          letter.to_row(topic, partition && partition < size ? partition : nil)
        end

        def failure(receipt)
          patience_s = @delivery_s + @room_s
          return if receipt.wait(patience_s)

          LogUnavailable.new("#{@client.address} has not confirmed what was sent back within #{patience_s.round} s")
        rescue LogError => e
          e
        end

        # How many, from the first on, are durable. Only the first failures are told apart.
        def unharmed(receipt)
          errors = receipt.errors.map(&:first)
          receipt.done? && errors.size == receipt.failed ? errors.min : 0
        end

        def note(number, letters, rows)
          return if letters.empty?

          @letters.done(number, letters.last.record.offset + 1)
          rows.first(letters.size).each { |row| @sent[row.first] += 1 }
        end
      end
    end
  end
end
