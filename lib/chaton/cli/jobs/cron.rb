# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs cron
      class Cron < Command
        # Columns of the list; times are those of this machine.
        HEAD = %w[name class queue schedule zone last next].freeze

        def run
          positional
          entries = ::Chaton::Jobs::CronEntry.all(plan.jobs, client)
          answer(entries.map { |entry| document(entry) }, entries.empty? ? "there is no cron entry" : table(entries))
        end

        private

        def document(entry)
          { name: entry.name, class: entry.class_name, queue: entry.queue, schedule: entry.schedule, zone: entry.zone,
            last_at: entry.last_at&.to_f, next_at: entry.next_at&.to_f }
        end

        def table(entries)
          rows = entries.map do |entry|
            [entry.name, entry.class_name, entry.queue, entry.schedule, entry.zone, entry.last_at, entry.next_at]
          end
          Table.text(HEAD, rows)
        end
      end
    end
  end
end
