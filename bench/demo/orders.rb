# frozen_string_literal: true

require "json"
require "net/http"

module Bench
  # Sends requests that enqueue one background job each, then requests that enqueue a thousand each, and measures the
  # time until all jobs are done.
  class Orders
    CLIENTS = 8
    SECONDS = 3
    BULK = 1_000
    BULKS = 20
    # Longest wait for the jobs to be done.
    WAIT_S = 60
    PROBE_EVERY_S = 0.02

    Result = Struct.new(:requests, :seconds, :jobs, :late_s, :failed, keyword_init: true) do
      def to_s
        rate = (requests / seconds).round
        end_of_jobs = late_s ? "#{format("%.2f", late_s)} s after the last order" : "NOT within #{WAIT_S} s"
        "Background jobs on SQLite: #{requests} requests enqueued one job each (#{rate} requests/s), #{BULKS} more " \
          "enqueued #{BULK} each;\nall #{jobs} jobs were done #{end_of_jobs}, #{failed} failed."
      end
    end

    # @param server [Server] that serves examples/all_in_one with its own configuration
    def initialize(server)
      @uri = URI(server.url("/"))
    end

    # @return [Result]
    def run
      before = counts
      started = now
      requests = Array.new(CLIENTS) { Thread.new { order_until(started + SECONDS) } }.sum(&:value)
      seconds = now - started
      http { |connection| BULKS.times { order(connection, BULK) } }
      jobs = requests + (BULKS * BULK)
      late_s = wait_for(before["processed"] + jobs)
      Result.new(requests: requests, seconds: seconds, jobs: jobs, late_s: late_s,
                 failed: counts["failed"] - before["failed"])
    end

    private

    def order_until(deadline)
      http do |connection|
        count = 0
        while now < deadline
          order(connection, 1)
          count += 1
        end
        count
      end
    end

    def order(connection, number)
      response = connection.post("/reports?n=#{number}", "")
      raise "an order failed with #{response.code}: #{response.body}" unless response.code == "202"
    end

    # The counters are only written with each heartbeat, so the time is taken from the queue.
    def wait_for(processed)
      started = now
      done = nil
      while now - started < WAIT_S
        counts = self.counts
        done ||= now - started if counts["enqueued"].zero? && counts["in_flight"].zero?
        return done if counts["processed"] >= processed

        sleep PROBE_EVERY_S
      end
    end

    def counts = JSON.parse(http { |connection| connection.get("/jobs.json").body })
    def http(&block) = Net::HTTP.start(@uri.host, @uri.port, &block)
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
