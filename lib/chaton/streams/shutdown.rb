# frozen_string_literal: true

module Chaton
  module Streams
    # Raised in a consumer when its worker has to stop at once: records that are not marked are consumed again by
    # another worker. It is an Interrupt, so that `rescue => e` in a consumer does not catch it.
    class Shutdown < Interrupt
      # Causes that are checked, at most.
      CAUSES_MAX = 32

      # @param error [Exception]
      # @return [Boolean] whether it is a shutdown, or is caused by one
      def self.behind?(error)
        CAUSES_MAX.times do
          return true if error.is_a?(self)
          return false unless (error = error.cause)
        end
        false
      end

      def initialize(message = "the worker is stopping")
        super
      end
    end
  end
end
