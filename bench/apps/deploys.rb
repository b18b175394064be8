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
      # Traffic before a worker dies.
      BEFORE_KILL_S = 1

      private

      def facts = { commands: @case.servers.to_h { |server| [server.label, server.command_line(server.app.rackup)] } }

      def measure(server)
        server.start
        load(server, RUN_S).run
        pss = server.tree.memory_mb[:pss_mb]
        failed, requests = during(server) { DEPLOYS.times { server.deploy } }
        load(server, RUN_S).run
        deployed = server.tree.memory_mb[:pss_mb]
        cut, = during(server) { sleep(BEFORE_KILL_S).then { server.kill_worker } }
        { failed:, cut:, requests:, pss_mb: pss, deployed_mb: deployed }
      ensure
        server.stop
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
