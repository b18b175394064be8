# frozen_string_literal: true

require_relative "process_client"
require_relative "rails/after_commit"

module Chaton
  # Messages to open event streams: the log of this process, and the hub that feeds its connections.
  #
  # @see Live::Broadcasting#broadcast
  # @see EventStream
  # @private
  module Live
    autoload :Broadcasting, "chaton/live/broadcasting"
    autoload :Client, "chaton/live/client"

    extend ProcessClient

    class << self
      # Sets the plan of a process that has read its configuration.
      #
      # @param plan [Config::Plan]
      def use(plan)
        @lock.synchronize do
          @plan = plan
          @client = nil
        end
      end

      # Ends the hub's thread, at the end of a worker.
      def finish
        @client&.stop
      end

      private

      def settled(plan) = plan

      def make_client = Client.new(configured(:live, "live { }"))
    end
  end
end
