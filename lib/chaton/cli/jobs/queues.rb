# frozen_string_literal: true

require_relative "command"

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
    end
  end
end
