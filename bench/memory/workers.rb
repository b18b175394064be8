# frozen_string_literal: true

require "net/http"
require_relative "../gc/apps"

module Bench
  module Memory
    # One slice: each forked worker of the template application serves some requests, then their pages are counted.
    class Workers
      CLIENTS = 4
      # A connection stays with one worker, so clients reconnect often.
      REQUESTS_PER_CONNECTION = 50
      # Longest time for the whole slice.
      LIMIT_S = 300

      # @param a_case [Case]
      # @param server [Server] with workers
      def initialize(a_case, server, *)
        @case = a_case
        @server = server
      end

      def measure
        @server.start(Gc::CATALOGUE)
        workers = serve
        pages = workers.keys.map { |pid| pages(pid) }
        { server: @server.label, private_mb: mean(pages, :private), shared_mb: mean(pages, :shared),
          requests: workers.values, workers: pages }
      ensure
        @server.stop
      end

      private

      # @return [Hash{Integer => Integer}] requests by worker
      def serve
        @deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + LIMIT_S
        served = Hash.new(0)
        clients = Array.new(CLIENTS) { Thread.new { ask(served) until enough?(served) } }
        clients.each(&:join)
        served
      end

      def enough?(served)
        late = Process.clock_gettime(Process::CLOCK_MONOTONIC) > @deadline
        raise "#{@server.label}: its workers served only #{served} in #{LIMIT_S} s" if late
        served.size == 2 && served.values.min >= @case.requests
      end

      def ask(served)
        Net::HTTP.start("127.0.0.1", @server.port) do |http|
          REQUESTS_PER_CONNECTION.times { served[Integer(http.get("/")["x-worker"])] += 1 }
        end
      end

      def pages(pid)
        lines = File.readlines("/proc/#{pid}/smaps_rollup")
        sum = ->(prefix) { lines.grep(/\A#{prefix}_(?:Clean|Dirty):/).sum { |line| line[/\d+/].to_i } / 1024.0 }
        { pid:, private: sum.call("Private").round(2), shared: sum.call("Shared").round(2) }
      end

      def mean(pages, kind) = (pages.sum { |found| found[kind] } / pages.size).round(2)
    end
  end
end
