# frozen_string_literal: true

require "json"

module Bench
  module Memory
    # Fills the queue with payload jobs in Sidekiq's format. Sizes are between the two bounds, and each order of
    # magnitude is as frequent as the others. The sequence is the same for every server.
    class PayloadQueue
      BYTES = (10_000..2_000_000)
      SEED = 20_261_121
      QUEUE = "queue:default"
      # Jobs in one push.
      BATCH = 1000

      # @param redis [RedisServer]
      def initialize(redis)
        @redis = redis
        @random = Random.new(SEED)
        @number = 0
      end

      # @param count [Integer] further jobs
      def push(count)
        @redis.call("SADD", "queues", "default")
        count.times.each_slice(BATCH) { |slice| @redis.call("LPUSH", QUEUE, *slice.map { JSON.generate(job) }) }
      end

      # @return [Integer] jobs that no server has claimed
      def size = @redis.call("LLEN", QUEUE)

      # Removes the jobs that no server has claimed.
      def clear = @redis.call("DEL", QUEUE)

      private

      def job
        now_s = Process.clock_gettime(Process::CLOCK_REALTIME)
        { class: "Payload", args: [@number += 1, bytes], queue: "default", jid: format("%024x", @number),
          retry: false, created_at: now_s, enqueued_at: now_s }
      end

      def bytes = (BYTES.begin * ((BYTES.end.to_f / BYTES.begin)**@random.rand)).to_i
    end
  end
end
