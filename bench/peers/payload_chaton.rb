# frozen_string_literal: true

require_relative "chaton_jobs"

module Bench
  # Chaton from this checkout, running the jobs of bench/memory in one process.
  class PayloadChaton < ChatonJobs
    JOB = File.join(ROOT, "bench/memory/apps/payload.rb")

    # @param settings [String] further lines of the configuration file
    # @param note [String, nil] added to the label
    def initialize(settings: "", note: nil, **rest)
      super(**rest)
      @settings = settings
      @note = note
    end

    def label = [super, @note].compact.join(" ")

    # @return [String] the whole configuration
    def configuration(_folder, url)
      <<~RUBY
        require "chaton/sidekiq"
        threads #{@threads.dump}
        #{@settings}
        jobs do
          store #{url.dump}
          queues "default"
          load #{JOB.dump}
        end
      RUBY
    end
  end
end
