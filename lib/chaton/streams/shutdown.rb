# frozen_string_literal: true

module Chaton
  module Streams
    # Raised in a consumer whose worker has to leave now: what it has not marked is read again by another one. An
    # Interrupt, so that `rescue => e` in a consumer lets it pass.
    class Shutdown < Interrupt
      # Causes looked at; a chain that is longer is not ours.
      CAUSES_MAX = 32

      # @param error [Exception]
      # @return [Boolean] whether it is a shutdown, or was raised because of one
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
