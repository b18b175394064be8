# frozen_string_literal: true

require_relative "../jobs/job_set"
require_relative "../jobs/process_set"
require_relative "../jobs/queue"
require_relative "../jobs/stats"

module Sidekiq
  Queue = Chaton::Jobs::Queue
  ScheduledSet = Chaton::Jobs::ScheduledSet
  RetrySet = Chaton::Jobs::RetrySet
  DeadSet = Chaton::Jobs::DeadSet
  ProcessSet = Chaton::Jobs::ProcessSet

  # Sidekiq's names for some of the counters.
  class Stats < Chaton::Jobs::Stats
    alias scheduled_size scheduled
    alias retry_size retries
    alias dead_size dead
    alias processes_size processes
    alias workers_size in_flight
  end
end
