# frozen_string_literal: true

module Chaton
  module Streams
    # The consumers of a process: one for each partition it has, and lane of it. What they keep belongs to one
    # assignment, so that one that came back begins anew.
    class Instances
      # The consumers of one partition, by lane.
      Place = Struct.new(:generation, :by_lane)

      def initialize
        @places = {}
        @lock = Mutex.new
      end

      # @param batch [Native::Batch]
      # @param entry [Entry] makes one where there is none
      # @return [Consumer]
      def of(batch, entry)
        # Of one lane there is one batch at a time.
        place(batch).by_lane[batch.lane] ||= entry.instance
      end

      # @param batch [Native::Batch]
      # @return [Array<Consumer>] those there are of its partition, which are not used again
      def let_go(batch)
        @lock.synchronize do
          place = @places[key(batch)]
          return [] unless place && place.generation <= batch.generation

          @places.delete(key(batch))
          place.by_lane.values
        end
      end

      # Forgets all: their classes are loaded anew.
      def clear = @places.clear

      # @return [Integer]
      def size = @places.sum { |_, place| place.by_lane.size }

      private

      # Several strands may begin at the same time.
      def place(batch)
        @lock.synchronize do
          place = @places[key(batch)]
          next place if place&.generation == batch.generation

          @places[key(batch)] = Place.new(batch.generation, {})
        end
      end

      def key(batch) = [batch.route, batch.partition]
    end
  end
end
