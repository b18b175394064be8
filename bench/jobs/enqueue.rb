# frozen_string_literal: true

require_relative "../peers/chaton_jobs"
require_relative "../peers/chaton_postgres"
require_relative "../peers/pgbench"
require_relative "../peers/redis_benchmark"
require_relative "stage"

module Bench
  module Jobs
    # One slice: a client process enqueues, and no server runs. Rate and processor time are those of the calls alone.
    # `commands`: of Redis for each job, those of the warm-up and Stats included.
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
        case @server
        when RedisBenchmark then round_trips
        when Pgbench then inserts
        else calls
        end
      end

      private

      # The document is one that Chaton's client has written.
      def round_trips
        document = Stage.open(ChatonJobs.new, @redis) do |stage|
          stage.ask("noops", 1)
          @redis.call("LINDEX", Stage::QUEUE, 0)
        end
        { server: @server.label, jobs: @case.jobs,
          rate: @server.rate(@redis, @case.jobs, "LPUSH", Stage::QUEUE, document).round(1) }
      end

      def inserts
        database = Postgres.database
        chaton = ChatonPostgres.new(database:)
        Stage.open(chaton, @redis) do |stage|
          stage.ask("noops", 1)
          { server: @server.label, jobs: @case.jobs, rate: @server.rate(stage.folder, database, @case.jobs).round(1) }
        end
      end

      def calls
        Stage.open(@server, @redis) do |stage|
          stage.ask("stats")
          redis_s = CpuClock.seconds([@redis.pid])
          commands = @redis.commands
          result = stage.ask(@case.job, @case.jobs)
          commands = @redis.commands - commands
          redis_s = CpuClock.seconds([@redis.pid]) - redis_s
          raise "#{@server.label} lost some of what it enqueued" if stage.ask("stats")[:enqueued] < @case.jobs
          { server: @server.label, jobs: @case.jobs, rate: result[:rate].round(1),
            worker_cpu_us: result[:cpu_us].round(3), redis_cpu_us: (redis_s * 1e6 / @case.jobs).round(3),
            commands: (commands.to_f / @case.jobs).round(2) }
        end
      end
    end
  end
end
