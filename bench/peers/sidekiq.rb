# frozen_string_literal: true

require_relative "job_server"

module Bench
  # The installed Sidekiq, logging errors only. Ruby's lock moves between cores, which costs time, so it is measured
  # pinned and unpinned.
  class Sidekiq < JobServer
    SETUP = File.join(ROOT, "bench/jobs/apps/sidekiq.rb")

    # @param threads [Integer]
    def initialize(threads:, core: nil)
      super(core:)
      @threads = threads
    end

    def label = ["sidekiq -c #{@threads}", @core && "pinned"].compact.join(" ")

    private

    def command(_folder, _url)
      ["ruby", "-S", "sidekiq", "-c", @threads.to_s, "-q", "default", "-e", "production", "-r", setup]
    end

    def setup = SETUP
    def environment(_folder, url) = { "REDIS_URL" => url }
    def library = SETUP
  end
end
