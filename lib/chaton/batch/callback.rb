# frozen_string_literal: true

module Chaton
  class Batch
    # The job that a batch's callback is run in.
    class Callback
      include Job

      options enqueue_after_commit: false

      # @param bid [String]
      # @param event [String]
      # @param target [String] "Class" or "Class#method"
      # @param options [Hash]
      # @return [void]
      def perform(bid, event, target, options)
        name, method = target.split("#", 2)
        object = Jobs::ClassEntry.constant(name).new
        object.jid = jid if object.respond_to?(:jid=)
        object.public_send(method || "on_#{event}", Status.new(bid), options)
      end
    end
  end
end
