# frozen_string_literal: true

require_relative "job_list"

module Chaton
  module Jobs
    # Jobs ordered by a time.
    class JobSet < JobList
      # @param native [Native::JobsClient]
      def initialize(native = Jobs.client.native)
        super(self.class::PLACE, native)
      end

      def size = @native.stats.fetch(self.class::COUNTED_AS)

      # Sends all jobs to their queues. An entry that is no job stays where it is.
      #
      # @return [Integer] how many
      # @raise [StoreRefused] when none could be moved
      def retry_all = move(&:retry)

      # Moves all jobs to the dead set.
      #
      # @return [Integer] how many
      def kill_all = move(&:kill)

      private

      # From the front, since handled jobs leave the set. Jobs that come back meanwhile do not count.
      def move(&block)
        left = size
        total = stay = 0
        refusal = nil
        while left.positive? && (jobs = page(stay, [PAGE, left].min)).any?
          moved = jobs.count do |job|
            block.call(job)
          rescue StoreRefused => e
            refusal = e
            stay += 1
            false
          end
          total += moved
          left -= jobs.size
        end
        raise refusal if refusal && total.zero?

        total
      end
    end

    # Jobs that are not due yet.
    class ScheduledSet < JobSet
      # Its location, and the key of its size in the statistics.
      PLACE, COUNTED_AS = "scheduled", :scheduled
    end

    # Failed jobs that will be retried.
    class RetrySet < JobSet
      # Its location, and the key of its size in the statistics.
      PLACE, COUNTED_AS = "retry", :retries
    end

    # Jobs that failed for good.
    class DeadSet < JobSet
      # Its location, and the key of its size in the statistics.
      PLACE, COUNTED_AS = "dead", :dead
    end
  end
end
