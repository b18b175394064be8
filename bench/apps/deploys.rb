# frozen_string_literal: true

require_relative "../support/case_run"
require_relative "../support/wrk"

module Bench
  module Apps
    # What clients see of three deploys, and of the death of a worker.
    class Deploys < Bench::CaseRun
      DEPLOYS = 3
      # One run of wrk, again and again until all is over.
      RUN_S = 4
      # Requests that a tree has answered when its memory is read. After the same time instead, the server that begins
      # more slowly has built less of what every worker keeps: views, caches, connections.
      WORK = 300
      # For them. Pages that are loaded for the first time take seconds.
      MOST_RUNS = 25
      # Traffic before a worker dies.
      BEFORE_KILL_S = 1

      private

      def facts = { commands: @case.servers.to_h { |server| [server.label, server.command_line(server.app.rackup)] } }

      def measure(server)
        server.start
        pss = memory_at_work(server)
        failed, requests = during(server) { DEPLOYS.times { server.deploy } }
        deployed = memory_at_work(server)
        cut, = during(server) { sleep(BEFORE_KILL_S).then { server.kill_worker } }
        { failed:, cut:, requests:, pss_mb: pss, deployed_mb: deployed }
      ensure
        server.stop
      end

      # @return [Float] MB, shared pages counted once (PSS)
      # @raise [RuntimeError] when the server is too slow or only fails
      def memory_at_work(server)
        done = 0
        MOST_RUNS.times do
          result = load(server, RUN_S).run
          done += result.requests - result.errors
          return server.tree.memory_mb[:pss_mb] if done >= WORK
        end
        raise "#{server.label} answered #{done} of #{WORK} requests in #{MOST_RUNS * RUN_S} s:\n#{server.log}"
      end

      # @return [Array(Integer, Integer)] how many requests failed, of how many
      def during(server, &block)
        doing = Thread.new(&block)
        doing.report_on_exception = false
        runs = []
        runs << load(server, RUN_S).run while doing.alive?
        doing.value
        [runs.sum(&:errors), runs.sum(&:requests)]
      end

      def load(server, seconds)
        Wrk.new(server.url(@case.path), connections: @case.connections, seconds:, headers: server.request_headers)
      end
    end
  end
end
