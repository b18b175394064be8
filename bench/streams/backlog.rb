# frozen_string_literal: true

require_relative "../support/rss_sampler"
require_relative "stage"

module Bench
  module Streams
    # Measures the resident memory of a slow consumer that is far behind, from its first batch on.
    class Backlog
      PARTITIONS = 4
      # The default limit of records that are read ahead from one partition.
      BUFFER_MB = 8
      # Factor for everything beside the records: their index, the batches at work, and the driver's copy of a fetch.
      OVERHEAD = 2
      BOUND_MB = PARTITIONS * BUFFER_MB * OVERHEAD

      # @param a_case [Case]
      def initialize(a_case)
        @case = a_case
      end

      # @param contender [Contender] `what` is the log
      def measure(contender)
        Stage.with(contender.what) do |stage|
          idle_mb = idle(stage)
          topic = stage.fresh_topic(PARTITIONS)
          stage.ask("fill", topic, @case.records, @case.bytes)
          consumed = watch(stage, topic)
          figures(idle_mb, consumed)
        end
      end

      private

      # @return [Float] megabytes of the same server with little work
      def idle(stage)
        topic = stage.fresh_topic(PARTITIONS)
        stage.ask("fill", topic, 10_000, 1)
        stage.serve(server(topic, stage), [10_000])
        stage.wait_for_goal
        RssSampler.now(stage.server.tree).tap { stage.server.stop }
      end

      # @return [RssSampler]
      def watch(stage, topic)
        stage.serve(server(topic, stage), [1])
        stage.wait_for_goal
        RssSampler.new(stage.server.tree).tap { |sampler| sampler.during { sleep(@case.seconds) } }
      end

      def server(topic, stage)
        ChatonStreams.new(threads: @case.threads.first, consumer: @case.consumer).reading([topic], stage.fresh_group)
      end

      def figures(idle_mb, sampler)
        third = @case.seconds / 3.0
        peaks = [sampler.peak(0, third), sampler.peak(2 * third)]
        { idle_mb:, peak_mb: sampler.peak, read_ahead_mb: (sampler.peak - idle_mb).round(1),
          growth: (peaks.last / peaks.first).round(3), samples: sampler.samples }
      end
    end
  end
end
