# frozen_string_literal: true

module Chaton
  module Streams
    # The consumers of a process: one for each partition it has, and strand of it. What they keep belongs to one
    # assignment, so that one that came back begins anew.
    class Instances
      # The consumers of one partition, by strand.
      Place = Struct.new(:generation, :by_strand)

      def initialize
        @places = {}
        @lock = Mutex.new
      end

      # @param turn [Native::Batch]
      # @param entry [Entry] makes one where there is none
      # @return [Consumer]
      def of(turn, entry)
        # Of one strand there is one turn at a time.
        place(turn).by_strand[turn.strand] ||= entry.instance
      end

      # @param turn [Native::Batch]
      # @return [Array<Consumer>] those there are of its partition, which are not used again
      def let_go(turn)
        @lock.synchronize do
          place = @places[key(turn)]
          return [] unless place && place.generation <= turn.generation

          @places.delete(key(turn))
          place.by_strand.values
        end
      end

      # Forgets all: their classes are loaded anew.
      #
      # @return [void]
      def clear = @places.clear

      # @return [Integer]
      def size = @places.sum { |_, place| place.by_strand.size }

      private

      # Several strands may begin at the same time.
      def place(turn)
        @lock.synchronize do
          place = @places[key(turn)]
          next place if place&.generation == turn.generation

          @places[key(turn)] = Place.new(turn.generation, {})
        end
      end

      def key(turn) = [turn.route, turn.partition]
    end
  end
end
