# frozen_string_literal: true

require "net/http"

module Bench
  # Replaces wrk where it is not installed: keep-alive clients in threads of this process.
  class Clients
    CLIENTS_MAX = 16
    # Has the methods of Wrk::Result.
    Result = Struct.new(:requests, :rps, :p50_ms, :p99_ms, :errors, keyword_init: true)

    # @param url [String]
    # @param connections [Integer] at most CLIENTS_MAX of them are opened
    # @param seconds [Integer]
    def initialize(url, connections:, seconds:)
      @uri = URI(url)
      @clients = [connections, CLIENTS_MAX].min
      @seconds = seconds
    end

    # @return [Result]
    def run
      deadline = now + @seconds
      responses = Array.new(@clients) { Thread.new { request_until(deadline) } }.flat_map(&:value)
      times = responses.filter_map { |ok, ms| ms if ok }.sort
      Result.new(requests: times.size, rps: times.size.fdiv(@seconds).round(1), errors: responses.size - times.size,
                 p50_ms: percentile(times, 0.5), p99_ms: percentile(times, 0.99))
    end

    private

    def request_until(deadline)
      responses = []
      Net::HTTP.start(@uri.host, @uri.port) do |http|
        while now < deadline
          started = now
          ok = http.get(@uri.request_uri).is_a?(Net::HTTPSuccess)
          responses << [ok, (now - started) * 1000]
        end
      end
      responses
    end

    def percentile(sorted, share) = sorted.empty? ? 0.0 : sorted[((sorted.size - 1) * share).round]
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
