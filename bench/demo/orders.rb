# frozen_string_literal: true

require "json"
require "net/http"

module Bench
  # Requests that each leave a background job, then one request that leaves a thousand at once, and how long it takes
  # until all of them are done.
  class Orders
    CLIENTS = 8
    SECONDS = 3
    BULK = 1_000
    BULKS = 20
    # Longest wait for the jobs to be done.
    PATIENCE_S = 60
    LOOK_EVERY_S = 0.02

    Result = Struct.new(:requests, :seconds, :jobs, :late_s, :failed, keyword_init: true) do
      def to_s
        rate = (requests / seconds).round
        end_of_jobs = late_s ? "#{format("%.2f", late_s)} s after the last order" : "NOT within #{PATIENCE_S} s"
        "Background jobs on SQLite: #{requests} requests left one job each (#{rate} requests/s), #{BULKS} more left " \
          "#{BULK} each;\nall #{jobs} jobs were done #{end_of_jobs}, #{failed} failed."
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
      answer = connection.post("/reports?n=#{number}", "")
      raise "an order was answered #{answer.code}: #{answer.body}" unless answer.code == "202"
    end

    # The counters are written with each sign of life, so the queue is looked at too.
    def wait_for(processed)
      started = now
      done = nil
      while now - started < PATIENCE_S
        counts = self.counts
        done ||= now - started if counts["enqueued"].zero? && counts["in_flight"].zero?
        return done if counts["processed"] >= processed

        sleep LOOK_EVERY_S
      end
    end

    def counts = JSON.parse(http { |connection| connection.get("/jobs.json").body })
    def http(&block) = Net::HTTP.start(@uri.host, @uri.port, &block)
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
