# frozen_string_literal: true

require_relative "../shutdown"

module Chaton
  module Jobs
    # Raised in a running job when its worker stops: the job goes back to the front of its queue, uncounted.
    class Shutdown < Chaton::Shutdown
      def self.shutdown?(error) = super || (SidekiqGem.loaded? && error.is_a?(::Sidekiq::Shutdown))
      private_class_method :shutdown?
    end
  end
end
