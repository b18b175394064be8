# frozen_string_literal: true

require "net/http"
require_relative "cases"
require_relative "../peers/chaton_with"
require_relative "../support/bar"
require_relative "../support/case_run"
require_relative "../support/wrk"

module Bench
  module Web
    # Requests beside four jobs that compute in the same process: how long the requests take, and how much of their pace
    # without requests the jobs keep.
    class JobsBeside < Bench::CaseRun
      APP = File.join(APPS, "beside.ru")
      SETTINGS = "jobs do\n  store \"sqlite://\#{__dir__}/jobs.db\"\nend\n"
      BARS = { 4 => [Bar.at_most(:p99_ms, 30.0, against: nil), Bar.at_least(:jobs_kept, 0.8, against: nil)],
               100 => [Bar.at_least(:jobs_kept, 0.05, against: nil), Bar.at_least(:rps, 2.0)] }.freeze
      CASES = BARS.map do |connections, bars|
        Case.new(name: "jobs-beside-c#{connections}", kind: self, rackup: APP, path: "/", connections:, rounds: 4,
                 title: "hello, c=#{connections}, beside 4 jobs that compute in the same process", seconds: 5, bars:,
                 servers: [ChatonWith.new(threads: "1:8", settings: SETTINGS), Puma.new(threads: "5:5")])
      end

      private

      def facts
        { path: @case.path, connections: @case.connections, seconds: @case.seconds,
          commands: @case.servers.to_h { |server| [server.label, server.command_line(@case.rackup)] } }
      end

      # Each slice has a new server: the jobs never end.
      def measure(server)
        server.start(@case.rackup)
        get(server, "/start")
        alone = jobs_per_s(server) { sleep @case.seconds }
        before = server.tree.read
        result = nil
        beside = jobs_per_s(server) { result = load(server).run }
        figures(result, server.tree.read.cpu_s_since(before))
          .merge(jobs_per_s: beside.round(2), jobs_kept: (beside / alone).round(3))
      ensure
        server.stop
      end

      def load(server) = Wrk.new(server.url("/"), connections: @case.connections, seconds: @case.seconds)

      def jobs_per_s(server)
        done, from = get(server, "/done").to_i, now
        yield
        (get(server, "/done").to_i - done) / (now - from)
      end

      def figures(result, cpu_s)
        { rps: result.rps, p99_ms: result.p99_ms, errors: result.errors, waits: 0.0,
          cpu_us: (cpu_s * 1e6 / [result.requests, 1].max).round(1) }
      end

      def get(server, path) = Net::HTTP.get(URI(server.url(path)))
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
