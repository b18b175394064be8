# frozen_string_literal: true

require "forwardable"
require_relative "../testing"

module Sidekiq
  # See {Chaton::Testing}. A test calls `Sidekiq::Testing.fake!` itself; the require does not.
  module Testing
    # As in Sidekiq, a block that sets a mode cannot be nested in another.
    class TestModeAlreadySetError < RuntimeError; end

    class << self
      extend Forwardable

      def_delegators "Chaton::Testing", :fake?, :inline?, :disabled?, :enabled?
      def_delegators "Chaton::Jobs.setup", :server_middleware

      %i[fake! inline! disable!].each do |name|
        define_method(name) do |&block|
          raise TestModeAlreadySetError, "a block has set the mode already" if block && Chaton::Testing.block_mode

          Chaton::Testing.public_send(name, &block)
        end
      end
    end
  end

  # Jobs waiting in a test.
  module Queues
    class << self
      extend Forwardable

      def_delegator "Chaton::Testing", :clear_all
      def_delegator "Chaton::Testing.memory", :by_class, :jobs_by_class
      def_delegator "Chaton::Testing.memory", :by_queue, :jobs_by_queue
      alias jobs_by_worker jobs_by_class

      # @param name [String]
      # @return [Array<Hash>] always the same Array
      def [](name) = jobs_by_queue[name]
    end
  end

  EmptyQueueError = Chaton::Testing::EmptyQueueError

  # Methods for tests.
  module Job
    class << self
      extend Forwardable

      def_delegators "Chaton::Testing", :jobs, :clear_all, :drain_all
    end
  end
end
