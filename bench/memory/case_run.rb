# frozen_string_literal: true

require_relative "../support/case_run"
require_relative "../support/redis_server"
require_relative "bursts"
require_relative "payloads"
require_relative "workers"

module Bench
  module Memory
    # Each slice has a server process of its own, because memory depends on what a process did before.
    class CaseRun < Bench::CaseRun
      KINDS = { payloads: Payloads, bursts: Bursts, workers: Workers }.freeze

      private

      def open
        @redis = RedisServer.new.start unless @case.kind == :workers
      end

      def close = @redis&.stop
      def measure(server) = KINDS.fetch(@case.kind).new(@case, server, @redis).measure

      def facts
        { seconds: @case.seconds, jobs: @case.jobs, requests: @case.requests,
          commands: @case.servers.to_h { |server| [server.label, command(server)] } }
      end

      def command(server) = server.is_a?(JobServer) ? server.command_line : server.command_line(Gc::CATALOGUE)
    end
  end
end
