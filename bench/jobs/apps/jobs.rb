# frozen_string_literal: true

require_relative "tally"

# Does nothing; the tally is one addition and one comparison.
class Noop
  include Sidekiq::Worker

  def perform(_number)
    Tally.count
  end
end

# Waits, as for a database or another service.
class Nap
  include Sidekiq::Worker

  def perform(seconds)
    sleep seconds
    Tally.count
  end
end

# Tells how long after its enqueueing it was started.
class Pulse
  include Sidekiq::Worker

  def perform(sent_ns)
    Tally.late(Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - sent_ns)
  end
end
