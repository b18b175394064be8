# frozen_string_literal: true

require_relative "../progress"
require_relative "command"
require_relative "dead_letters"
require_relative "record_format"

module Chaton
  class CLI
    module Streams
      # chaton streams dlq list [TOPIC] | replay TOPIC
      class Dlq < Command
        # Dead letters that are listed by default.
        LISTED = 25
        ACTS = %w[list replay].freeze

        def self.own_options = %i[partition count replay_to]

        # @raise [Chaton::Error]
        def run
          act, name = positional("list or replay", more: 1)
          raise ConfigError, unknown(act) unless ACTS.include?(act)
          return name ? list(letters(name)) : list_all if act == "list"
          raise ConfigError, "TOPIC is missing: chaton streams dlq replay TOPIC" unless name

          replay(name, letters(name))
        end

        private

        def letters(name)
          topic = admin.topic!(name)
          DeadLetters.new(client, admin, topic, partitions(topic))
        end

        def list_all
          found = declared.map do |name|
            topic = admin.topic(name)
            { topic: name, waiting: topic ? DeadLetters.new(client, admin, topic, topic["partitions"]).left : 0 }
          end
          rows = found.map(&:values)
          answer(found, rows.empty? ? "no dead-letter topic is configured" : Table.text(%w[topic waiting], rows))
        end

        def declared = plan.streams.routes.filter_map { |route| route.engine[:dead_letter] }.uniq.sort

        def list(letters)
          found = letters.first(value(:count) || LISTED)
          data = found.map { |letter| { **RecordFormat.data(letter.record), **letter.cause } }
          answer(data, found.empty? ? "nothing waits there" : table(found))
        end

        def table(found)
          rows = found.map do |letter|
            cause = letter.cause
            [letter.place, "#{cause[:source_topic]}/#{cause[:source_partition]} @#{cause[:source_offset]}",
             cause[:source_consumer_group], cause[:source_attempts], cause[:failed_at],
             RecordFormat.text(letter.record.key),
             "#{cause[:error_class]}: #{cause[:error_message]}"]
          end
          Table.text(["dead letter", "came from", "group", "attempts", "failed at", "key", "error"], rows)
        end

        def replay(name, letters)
          replay = Replay.new(client, admin, letters, to: value(:replay_to), timeouts: timeouts)
          Progress.on(@err, "replay", letters.left) do |progress|
            replay.run(value(:count) || Float::INFINITY) { |count| progress.at(count) }
          end
          sent = replay.sent
          data = { topic: name, replayed: sent.values.sum, to: sent, waiting: letters.left }
          answer(data, text(name, data))
        rescue StreamError => e
          raise e.class, "#{e.message} (#{Config::Types.thousands(replay.sent.values.sum)} were sent back before that)"
        end

        def text(name, data)
          return "nothing waits in #{name}" if data[:replayed].zero?

          places = data[:to].map { |topic, count| "#{Config::Types.thousands(count)} to #{topic}" }
          "#{places.join(", ")}; #{Config::Types.thousands(data[:waiting])} still wait in #{name}"
        end

        def unknown(act)
          nearest = Config::Nearest.to(act, ACTS)
          "chaton streams dlq has no command #{act.inspect}#{"; did you mean #{nearest}?" if nearest}"
        end
      end

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
