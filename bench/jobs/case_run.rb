# frozen_string_literal: true

require_relative "../support/case_run"
require_relative "../support/redis_server"
require_relative "delay"
require_relative "drain"
require_relative "enqueue"
require_relative "latency"

module Bench
  module Jobs
    # All servers of a case use one Redis. Each slice has a server process of its own, because memory and caches depend
    # on what a process did before.
    class CaseRun < Bench::CaseRun
      KINDS = { drain: Drain, enqueue: Enqueue, latency: Latency }.freeze

      private

      # A peer whose source is not there cannot be compared.
      def open
        against = @case.bars.map(&:against).grep(String)
        missing = against.uniq.reject { |peer| @case.servers.any? { |server| server.label.start_with?(peer) } }
        raise "there is no #{missing.join(" and no ")} here" unless missing.empty?
        @redis = RedisServer.new.start
        @delay = @case.delay_ms && Delay.new(@redis.port, @case.delay_ms).start
      end

      def close
        @delay&.stop
        @redis&.stop
      end

      def measure(server)
        KINDS.fetch(@case.kind).new(@case, server, @redis, port: @delay&.port || @redis.port).measure
      end

      def facts
        { job: @case.job, jobs: @case.jobs, nap_s: @case.nap_s, delay_ms: @case.delay_ms,
          commands: @case.servers.to_h { |server| [server.label, server.command_line] }, configurations: }
      end

      def configurations
        @case.servers.select(&:chaton?).to_h do |server|
          [server.label, server.configuration("FOLDER", "redis://127.0.0.1:PORT/0")]
        end
      end
    end
  end
end
