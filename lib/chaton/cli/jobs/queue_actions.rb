# frozen_string_literal: true

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
    end
  end
end
