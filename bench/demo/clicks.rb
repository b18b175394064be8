# frozen_string_literal: true

require "json"
require "net/http"

module Bench
  # Sends requests that write records to a stream, while another process consumes it. Measures the rates of writing and
  # consuming, and checks that no record is left.
  class Clicks
    CLIENTS = 8
    SECONDS = 3
    # Records per request of one client; the requests of the others write one record each.
    BULK = 5_000
    # Longest wait for the consumer.
    WAIT_S = 60
    PROBE_EVERY_S = 0.02

    Result = Struct.new(:requests, :records, :seconds, :consumed, :late_s, :lag, :reports, keyword_init: true) do
      def to_s
        late = late_s ? "#{format("%.2f", late_s)} s after the last was written" : "NOT within #{WAIT_S} s"
        "Streams on the local log: #{requests} requests wrote #{records} records (#{rate(records, seconds)} a second " \
          "from web); the\nconsumer in another process read #{consumed} (#{rate(consumed, seconds + late_s.to_f)} " \
          "a second) and was done #{late};\nlag at the end #{lag}. It has read #{reports} records of jobs so far."
      end

      private

      def rate(count, seconds) = (count / seconds).round
    end

    # @param server [Server] that serves examples/all_in_one with its own configuration
    def initialize(server)
      @uri = URI(server.url("/"))
    end

    # @return [Result]
    def run
      before = idle_counts
      started = now
      sizes = [BULK, *Array.new(CLIENTS - 1, 1)]
      sent = sizes.map { |size| Thread.new { click_until(started + SECONDS, size) } }.map(&:value)
      seconds = now - started
      requests, records = sent.sum(&:first), sent.sum(&:last)
      late_s = wait_for(before["consumed"] + records)
      after = counts
      Result.new(requests: requests, records: records, seconds: seconds, late_s: late_s, lag: after["lag"],
                 consumed: after["consumed"] - before["consumed"], reports: after["tally"].fetch("report", 0))
    end

    private

    # Waits until the records of earlier loads are consumed.
    def idle_counts
      started = now
      sleep PROBE_EVERY_S until counts["lag"].zero? || now - started > WAIT_S
      counts
    end

    # @return [Array(Integer, Integer)] requests and records
    def click_until(deadline, size)
      requests = 0
      http do |connection|
        while now < deadline
          response = connection.post("/clicks?n=#{size}", "")
          raise "a click failed with #{response.code}: #{response.body}" unless response.code == "202"

          requests += 1
        end
      end
      [requests, requests * size]
    end

    # @return [Float, nil] seconds; nil when the wait was too long
    def wait_for(consumed)
      started = now
      while now - started < WAIT_S
        seen = counts
        return now - started if seen["consumed"] >= consumed && seen["lag"].zero?

        sleep PROBE_EVERY_S
      end
    end

    def counts = JSON.parse(http { |connection| connection.get("/streams.json").body })
    def http(&block) = Net::HTTP.start(@uri.host, @uri.port, &block)
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
