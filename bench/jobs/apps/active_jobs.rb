# frozen_string_literal: true

# A Rails application whose jobs are those of Active Job, on the adapter BENCH_ADAPTER. BENCH_SOURCE names folders of
# gems' sources. It logs no line for a job.
require "rails"
# Of GoodJob's dashboard, which is loaded with the rest.
require "action_controller/railtie"
require "active_record/railtie"
require "active_job/railtie"

adapter = ENV.fetch("BENCH_ADAPTER")
$LOAD_PATH.unshift(*ENV.fetch("BENCH_SOURCE", "").split(":").map { |folder| File.join(folder, "lib") })
require adapter
require_relative "tally"

# The application.
class ActiveJobs < Rails::Application
  config.root = Dir.pwd
  config.load_defaults Rails::VERSION::STRING.to_f
  config.eager_load = true
  # As in production: otherwise each job looks for changed files.
  config.enable_reloading = false
  config.logger = Logger.new(File::NULL, level: :error)
  config.active_job.queue_adapter = ENV.fetch("BENCH_ADAPTER").to_sym
  config.secret_key_base = "bench"
end
ActiveJobs.initialize!

# What the client calls.
module SidekiqNames
  BATCH = 1000

  def perform_async(...) = perform_later(...)

  def perform_bulk(lists)
    lists.each_slice(BATCH) { |slice| ActiveJob.perform_all_later(slice.map { |arguments| new(*arguments) }) }
  end
end

# Does nothing but count.
class Noop < ActiveJob::Base
  extend SidekiqNames

  def perform(_number) = Tally.count
end

# Reports the time from its enqueueing to its start.
class Pulse < ActiveJob::Base
  extend SidekiqNames

  def perform(sent_ns) = Tally.late(Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - sent_ns)
end
