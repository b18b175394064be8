# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs list [PLACE]
      class List < Command
        # Characters of arguments and error in one line.
        TEXT_MAX = 60

        def self.own_options = %i[queue limit offset]

        def run
          name, = positional(more: 1)
          count, offset = value(:limit), value(:offset)
          records = places(name).flat_map do |place|
            client.list(place, offset, count).map { |entry| record(place, entry) }
          end
          answer(records.map { |one| data(one) }, text(records))
        end

        private

        def places(name)
          queue = value(:queue)
          raise ConfigError, "name a place or --queue, not both" if queue && name
          return [queue ? "queue:#{queue}" : place(name)] if queue || name

          [*client.queues.map { |one| "queue:#{one[:name]}" }, *SETS]
        end

        def data(record)
          { place: record.place, jid: record.jid, class: record.job_class, args: record.args, queue: record.queue,
            at: record.at&.to_f, error: record["error_message"] }
        end

        def text(records)
          return "no jobs wait there" if records.empty?

          rows = records.map do |one|
            [one.place, one.jid || "(no job document)", one.job_class, short(one.args.to_json[1..-2]), one.at,
             short(one["error_message"])]
          end
          Table.text(%w[place jid class arguments at error], rows)
        end

        def short(text) = text.nil? || text.length <= TEXT_MAX ? text : "#{text[0, TEXT_MAX - 1]}…"
      end
    end
  end
end
