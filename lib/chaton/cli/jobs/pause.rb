# frozen_string_literal: true

require_relative "command"

module Chaton
  class CLI
    module Jobs
      # chaton jobs pause QUEUE
      class Pause < Command
        def run = set(true, "is paused: what waits in it is kept, and not taken")

        private

        def set(paused, what)
          queue = positional("QUEUE").first.delete_prefix("queue:")
          known = client.queues.map { |one| one[:name] }
          client.pause(queue, paused)
          note = known.include?(queue) ? "" : " (no job was ever in it; known are #{known.join(", ")})"
          answer({ queue: queue, paused: paused }, "queue #{queue} #{what}#{note}")
        end
      end
    end
  end
end
