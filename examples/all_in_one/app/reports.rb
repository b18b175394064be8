# frozen_string_literal: true

require "json"

# Enqueues jobs from requests. The job class and Chaton are loaded on first use, so that the other paths run under any
# server.
class Reports
  JSON_TYPE = { "content-type" => "application/json", "cache-control" => "no-store" }.freeze
  REPORTS_MAX = 1_000

  def initialize
    @mutex = Mutex.new
    @number = 0
  end

  # POST /reports?n=10 enqueues ten jobs.
  def enqueue(env)
    count = Rack::Utils.parse_query(env["QUERY_STRING"]).fetch("n", "1").to_i.clamp(1, REPORTS_MAX)
    lists = Array.new(count) { number.then { |number| [number, "Report #{number}"] } }
    jids = count == 1 ? [job.perform_async(*lists.first)] : job.perform_bulk(lists)
    [202, JSON_TYPE.dup, [JSON.generate(enqueued: jids.size, first: jids.first)]]
  end

  # GET /jobs.json returns the number of jobs by state.
  def counts
    job
    [200, JSON_TYPE.dup, [JSON.generate(Chaton::Jobs.client.native.stats)]]
  end

  private

  def number = @mutex.synchronize { @number += 1 }

  def job
    require_relative "jobs/report_job"
    ReportJob
  end
end
