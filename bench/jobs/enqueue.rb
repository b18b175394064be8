# frozen_string_literal: true

require_relative "stage"

module Bench
  module Jobs
    # One slice: a client process enqueues, and no server runs. Rate and processor time are those of the calls alone.
    class Enqueue
      # @param a_case [Case]
      # @param server [JobServer] whose client it is
      # @param redis [RedisServer]
      def initialize(a_case, server, redis, **)
        @case = a_case
        @server = server
        @redis = redis
      end

      def measure
        Stage.open(@server, @redis) do |stage|
          stage.ask("stats")
          redis_s = CpuClock.seconds([@redis.pid])
          result = stage.ask(@case.job, @case.jobs)
          redis_s = CpuClock.seconds([@redis.pid]) - redis_s
          raise "#{@server.label} lost some of what it enqueued" if stage.ask("stats")[:enqueued] < @case.jobs
          { server: @server.label, jobs: @case.jobs, rate: result[:rate].round(1),
            worker_cpu_us: result[:cpu_us].round(3), redis_cpu_us: (redis_s * 1e6 / @case.jobs).round(3) }
        end
      end
    end
  end
end
