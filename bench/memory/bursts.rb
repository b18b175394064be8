# frozen_string_literal: true

require_relative "payload_stage"

module Bench
  module Memory
    # One slice: the same burst of payload jobs ten times, with an idle pause after each.
    class Bursts
      BURSTS = 10
      # Longest time for one burst.
      LIMIT_S = 120

      # @param a_case [Case] `jobs` in each burst, `seconds` of idling after it
      # @param server [JobServer]
      # @param redis [RedisServer]
      def initialize(a_case, server, redis)
        @case = a_case
        @server = server
        @redis = redis
      end

      def measure
        PayloadStage.open(@server, @redis) do |stage|
          sampler = stage.sampler
          idle_mb = sampler.during { Array.new(BURSTS) { |number| burst(stage, number) } }
          { server: @server.label, burst_2_mb: idle_mb[1], burst_10_mb: idle_mb.last,
            growth: (idle_mb.last / idle_mb[1]).round(4), peak_mb: sampler.peak, idle_mb:, samples: sampler.samples }
        end
      end

      private

      # @return [Float] megabytes that are resident at the end of the idling
      def burst(stage, number)
        goal = PayloadStage::FIRST_JOBS + ((number + 1) * @case.jobs)
        # A new queue has the same payloads again.
        queue = PayloadQueue.new(@redis)
        queue.push(@case.jobs)
        stage.wait_for(LIMIT_S) { stage.ended == goal }
        sleep @case.seconds
        RssSampler.now(@server.tree)
      end
    end
  end
end
