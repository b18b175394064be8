# frozen_string_literal: true

module Chaton
  class Batch
    # The job that runs a callback of a batch.
    class Callback
      include Job

      options enqueue_after_commit: false

      # @param target [String] "Class" or "Class#method"
      def perform(bid, event, target, options)
        name, method = target.split("#", 2)
        object = Jobs::JobClass.constant(name).new
        object.jid = jid if object.respond_to?(:jid=)
        object.public_send(method || "on_#{event}", Status.new(bid), options)
      end
    end
  end
end
