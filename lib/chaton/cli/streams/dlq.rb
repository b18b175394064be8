# frozen_string_literal: true

require_relative "../progress"
require_relative "command"
require_relative "dead_letters"
require_relative "replay"
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
    end
  end
end
