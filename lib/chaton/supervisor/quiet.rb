# frozen_string_literal: true

module Chaton
  class Supervisor
    # That workers take no new work: told to those that are there, and to each that becomes ready later, in place of one
    # that died or was replaced.
    class Quiet
      # @param fleet [Fleet]
      def initialize(fleet)
        @fleet = fleet
        @signals = []
        @told = {}.compare_by_identity
      end

      # @param signal [String] what workers take no more of: see {Worker}
      # @return [void]
      def ask(signal)
        @signals |= [signal]
        tell
      end

      # Whoever becomes ready from now on is not told any more.
      #
      # @return [void]
      def lift
        @signals = []
      end

      # Tells everyone who has not been told.
      #
      # @return [void]
      def tell
        @told.reject! { |child, _| child.dead? }
        @fleet.children.select(&:ready?).each do |child|
          (@signals - @told.fetch(child, [])).each { |signal| child.signal(signal) }
          @told[child] = @told.fetch(child, []) | @signals
        end
      end
    end
  end
end
