# frozen_string_literal: true

require_relative "table_queue"

module Bench
  # GoodJob, in one process.
  class GoodJob < TableQueue
    SOURCE = ENV.fetch("CHATON_BENCH_GOOD_JOB", nil)

    private

    def adapter = "good_job"
    def run = "GoodJob::CLI.start(%w[start --queues=default --max-threads=#{@threads}])"

    # Its command reads this file, and the application is loaded already.
    def environment(folder, url)
      FileUtils.mkdir_p(File.join(folder, "config"))
      FileUtils.touch(File.join(folder, "config/environment.rb"))
      super
    end
  end
end
