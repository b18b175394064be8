# frozen_string_literal: true

module Chaton
  # The base of the exceptions raised in work that still runs at the end of a graceful stop. It is an Interrupt, so that
  # `rescue => e` in user code does not catch it.
  class Shutdown < Interrupt
    # Causes that are checked at most.
    CAUSES_MAX = 32

    class << self
      # @return [Boolean] whether it is a shutdown, or was raised because of one
      def behind?(error)
        CAUSES_MAX.times do
          return true if shutdown?(error)
          return false unless (error = error.cause)
        end
        false
      end

      private

      def shutdown?(error) = error.is_a?(self)
    end

    def initialize(message = "the worker is stopping")
      super
    end
  end
end
