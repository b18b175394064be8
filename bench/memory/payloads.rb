# frozen_string_literal: true

require_relative "payload_stage"

module Bench
  module Memory
    # One slice: as many payload jobs as the server can do in the slice, then an idle pause.
    class Payloads
      # More than any server here can do.
      JOBS_PER_S = 600
      # The peak of the last seconds is compared with the peak of as many seconds before.
      LAST_S = 20
      AFTER_S = 10

      # @param a_case [Case]
      # @param server [JobServer]
      # @param redis [RedisServer]
      def initialize(a_case, server, redis)
        @seconds = a_case.seconds
        @server = server
        @redis = redis
        # Short slices compare thirds.
        @last_s = [LAST_S, @seconds / 3.0].min
      end

      def measure
        PayloadStage.open(@server, @redis) do |stage|
          sampler = stage.sampler
          work = sampler.during { load(stage) }
          sleep AFTER_S
          { server: @server.label, **work, **memory(sampler), after_mb: RssSampler.now(@server.tree),
            samples: sampler.samples }
        end
      end

      private

      def load(stage)
        before = [stage.ended, stage.cpu_s]
        started_s = stage.now_s
        stage.queue.push(@seconds * JOBS_PER_S)
        # The server does its first jobs while the queue is still being filled.
        stage.wait_for(@seconds * 2) { stage.now_s - started_s >= @seconds }
        jobs, cpu_s = [stage.ended, stage.cpu_s].zip(before).map { |after, earlier| after - earlier }
        raise "#{@server.label} ran out of jobs" if stage.queue.size.zero?
        stage.queue.clear
        { jobs:, jobs_per_s: (jobs / (stage.now_s - started_s)).round(2), cpu_s: cpu_s.round(3),
          work_per_cpu_s: (jobs / cpu_s).round(3) }
      end

      def memory(sampler)
        last = sampler.peak(@seconds - @last_s, @seconds)
        before = sampler.peak(@seconds - (2 * @last_s), @seconds - @last_s)
        { peak_mb: sampler.peak(0, @seconds), last_mb: last, before_last_mb: before, climb: (last / before).round(4) }
      end
    end
  end
end
