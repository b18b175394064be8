# frozen_string_literal: true

require_relative "table_queue"

module Bench
  # Solid Queue, whose supervisor has one worker, a process of its own, as it is recommended.
  class SolidQueue < TableQueue
    SOURCE = ENV.fetch("CHATON_BENCH_SOLID_QUEUE", nil)

    private

    def adapter = "solid_queue"

    def run
      "SolidQueue::Supervisor.start(skip_recurring: true, dispatchers: [{ polling_interval: 1 }], " \
        "workers: [{ queues: 'default', threads: #{@threads}, polling_interval: 0.1 }])"
    end
  end
end
