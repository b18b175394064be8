# frozen_string_literal: true

require_relative "command"
require_relative "job_actions"

module Chaton
  class CLI
    module Jobs
      # chaton jobs queues
      class Queues < Command
        def run
          positional
          queues = client.queues
          rows = queues.map { |queue| [queue[:name], queue[:size], queue[:latency_s].round(3), queue[:paused]] }
          text = rows.empty? ? "no job was ever enqueued" : Table.text(%w[queue waiting latency_s paused], rows)
          answer(queues, text)
        end
      end

      # chaton jobs pause QUEUE
      class Pause < Command
        def run = set(true, "is paused: its jobs are kept, and none is taken")

        private

        def set(paused, what)
          queue = positional("QUEUE").first.delete_prefix("queue:")
          known = client.queues.map { |one| one[:name] }
          client.pause(queue, paused)
          note = known.include?(queue) ? "" : " (no job was ever in it; known are #{known.join(", ")})"
          answer({ queue: queue, paused: paused }, "queue #{queue} #{what}#{note}")
        end
      end

      # chaton jobs resume QUEUE
      class Resume < Pause
        def run = set(false, "is no longer paused")
      end

      # chaton jobs drain QUEUE
      class Drain < Clearing
        def run = empty("queue:#{positional("QUEUE").first.delete_prefix("queue:")}")
      end

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
