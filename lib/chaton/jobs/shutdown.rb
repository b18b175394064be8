# frozen_string_literal: true

module Chaton
  module Jobs
    # Raised in a running job when its worker stops: the job goes back to the front of its queue, uncounted. It is an
    # Interrupt, so that `rescue => e` in a job does not catch it.
    class Shutdown < Interrupt
      # Causes that are checked.
      CAUSES_MAX = 32

      # @param error [Exception]
      # @return [Boolean] whether it is a shutdown, or was raised because of one
      def self.behind?(error)
        CAUSES_MAX.times do
          return true if error.is_a?(self) || (SidekiqGem.loaded? && error.is_a?(::Sidekiq::Shutdown))
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
