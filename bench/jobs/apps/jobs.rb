# frozen_string_literal: true

require_relative "tally"

# Does nothing but count, which is one addition and one comparison.
class Noop
  include Sidekiq::Job

  def perform(_number)
    Tally.count
  end
end

# Waits, like a job that calls a database or another service.
class Nap
  include Sidekiq::Job

  def perform(seconds)
    sleep seconds
    Tally.count
  end
end

# Reports the time from its enqueueing to its start.
class Pulse
  include Sidekiq::Job

  def perform(sent_ns)
    Tally.late(Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - sent_ns)
  end
end
