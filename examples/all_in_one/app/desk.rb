# frozen_string_literal: true

require "json"

# Where requests leave work for later. The job's class, and Chaton with it, is loaded on first use: the other paths
# run under any server.
class Desk
  JSON_TYPE = { "content-type" => "application/json", "cache-control" => "no-store" }.freeze
  REPORTS_MAX = 1_000

  def initialize
    @mutex = Mutex.new
    @number = 0
  end

  # Enqueues reports: POST /reports?n=10.
  def order(env)
    count = Rack::Utils.parse_query(env["QUERY_STRING"]).fetch("n", "1").to_i.clamp(1, REPORTS_MAX)
    lists = Array.new(count) { number.then { |number| [number, "Report #{number}"] } }
    jids = count == 1 ? [job.perform_async(*lists.first)] : job.perform_bulk(lists)
    [202, JSON_TYPE.dup, [JSON.generate(enqueued: jids.size, first: jids.first)]]
  end

  # What became of all jobs: GET /jobs.json.
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
