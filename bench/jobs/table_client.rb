# frozen_string_literal: true

require_relative "client"

# The client of an application with Active Job: ruby table_client.rb APPLICATION. It makes the tables, as the generators
# of the adapters do.
class TableClient < Client
  GENERATORS = "lib/generators"
  SOLID_QUEUE = "#{GENERATORS}/solid_queue/install/templates/db/queue_schema.rb".freeze
  GOOD_JOB = "#{GENERATORS}/good_job/templates/install/migrations/create_good_jobs.rb.erb".freeze

  def make_tables
    ActiveRecord::Schema.verbose = ActiveRecord::Migration.verbose = false
    case ENV.fetch("BENCH_ADAPTER")
    when "solid_queue" then load source(SOLID_QUEUE)
    when "good_job"
      script = File.read(source(GOOD_JOB)).sub("<%= migration_version %>", "[#{Rails::VERSION::STRING.to_f}]")
      Object.class_eval(script)
      CreateGoodJobs.migrate(:up)
    end
    self
  end

  def stats
    case ENV.fetch("BENCH_ADAPTER")
    when "solid_queue" then solid_queue
    when "good_job" then good_job
    else Chaton::Jobs::Stats.new.to_h.slice(:processed, :failed, :enqueued, :retries, :dead)
    end
  end

  private

  def source(path) = File.join(ENV.fetch("BENCH_SOURCE").split(":").first, path)

  def solid_queue
    done = SolidQueue::Job.finished.count
    failed = SolidQueue::FailedExecution.count
    { processed: done, failed:, enqueued: SolidQueue::Job.where(finished_at: nil).count, retries: 0, dead: 0 }
  end

  def good_job
    done = GoodJob::Job.finished
    { processed: done.count, failed: done.where.not(error: nil).count, retries: 0, dead: 0,
      enqueued: GoodJob::Job.where(finished_at: nil).count }
  end
end

require ARGV.fetch(0)
TableClient.new.make_tables.serve
