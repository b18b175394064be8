# frozen_string_literal: true

module Chaton
  module Streams
    # The consumers of a process: one for each assigned partition and key lane. A partition that is assigned again gets
    # new ones.
    class Instances
      # The consumers of one partition, by key lane.
      ByLane = Struct.new(:generation, :consumers)

      def initialize
        @partitions = {}
        @lock = Mutex.new
      end

      # @param batch [Native::Batch]
      # @param factory [ConsumerFactory] makes the consumer if there is none
      # @return [Consumer]
      def of(batch, factory)
        # No lock: a lane has one batch at a time.
        by_lane(batch).consumers[batch.lane] ||= factory.instance
      end

      # @param batch [Native::Batch]
      # @return [Array<Consumer>] the consumers of its partition, which are removed
      def remove(batch)
        @lock.synchronize do
          by_lane = @partitions[key(batch)]
          return [] unless by_lane && by_lane.generation <= batch.generation

          @partitions.delete(key(batch))
          by_lane.consumers.values
        end
      end

      # Removes all, because their classes are reloaded.
      def clear = @partitions.clear

      def size = @partitions.sum { |_, by_lane| by_lane.consumers.size }

      private

      # Several lanes may start at the same time.
      def by_lane(batch)
        @lock.synchronize do
          by_lane = @partitions[key(batch)]
          next by_lane if by_lane&.generation == batch.generation

          @partitions[key(batch)] = ByLane.new(batch.generation, {})
        end
      end

      def key(batch) = [batch.route, batch.partition]
    end
  end
end
