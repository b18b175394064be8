# frozen_string_literal: true

require_relative "../peers/chaton_jobs"
require_relative "../peers/sidekiq"

module Bench
  module Jobs
    # One row of the table: which jobs, for whom, and what has to come out.
    Case = Struct.new(
      :name,      # for --case and file names
      :title,     # for people
      :kind,      # how it is measured: :drain, :enqueue or :latency
      :job,       # :noop or :nap; for :enqueue the client's command
      :jobs,      # how many in one slice
      :nap_s,     # what a nap takes
      :delay_ms,  # between the server and Redis, each way
      :watch,     # whether threads and fibers are counted as they are created
      :servers,   # all under measurement
      :rounds,    # slices for each server
      :shows,     # the metric of the table's columns
      :bars,
      keyword_init: true
    ) do
      def initialize(**given)
        super(**{ kind: :drain, job: :noop, rounds: 5, shows: :rate, bars: [] }.merge(given))
      end
    end

    # The core a pinned Sidekiq runs on.
    PINNED_CORE = 0
  end
end
