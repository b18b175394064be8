# frozen_string_literal: true

require_relative "job"
require_relative "testing/streams"

module Chaton
  # For an application's tests: jobs are kept in memory, or run where they are enqueued, and need no store; see
  # {StreamsHelpers} for streams.
  #
  # @example
  #   require "chaton/testing"
  #   Chaton::Testing.fake!
  #   SomeJob.perform_async(1)
  #   SomeJob.jobs.size # => 1
  #   SomeJob.drain
  module Testing
    autoload :Memory, "chaton/testing/memory"

    extend StreamsHelpers

    # No job of the class is waiting.
    class EmptyQueueError < Error; end

    # What job classes can do in tests.
    module ClassMethods
      # @return [Array<Hash>] its jobs that wait, as documents
      def jobs = Testing.memory.jobs_of(name)

      # Forgets its jobs.
      #
      # @return [void]
      def clear = Testing.memory.clear(name)

      # Runs its jobs, also those they enqueue, until none waits.
      #
      # @return [void]
      def drain = Testing.memory.drain(name)

      # Runs its first job.
      #
      # @return [void]
      # @raise [EmptyQueueError]
      def perform_one
        Testing.memory.run_first(name) or raise EmptyQueueError, "no job of #{name} is waiting"
      end

      # Runs a job from its document.
      #
      # @param item [Hash{String=>Object}]
      # @return [void]
      def process_job(item) = Jobs::Inline.perform(item)
    end

    @memory = Memory.new
    @client = Jobs::Client.new(@memory)
    @mode = :disable

    class << self
      # @return [Memory]
      # @private
      attr_reader :memory

      # Jobs wait in memory: for good, or while the block runs.
      #
      # @return [void]
      def fake!(&block) = switch(:fake, &block)

      # Jobs run where they are enqueued.
      #
      # @return [void]
      def inline!(&block) = switch(:inline, &block)

      # Jobs go to the store.
      #
      # @return [void]
      def disable!(&block) = switch(:disable, &block)

      # @return [Boolean]
      def fake? = @mode == :fake

      # @return [Boolean]
      def inline? = @mode == :inline

      # @return [Boolean]
      def disabled? = @mode == :disable

      # @return [Boolean]
      def enabled? = !disabled?

      # @return [Array<Hash>] all jobs that wait
      def jobs = memory.jobs

      # Runs all jobs, also those they enqueue.
      #
      # @return [void]
      def drain_all = memory.drain

      # Forgets all jobs.
      #
      # @return [void]
      def clear_all = memory.clear

      private

      def switch(mode)
        before = @mode
        apply(mode)
        return unless block_given?

        begin
          yield
        ensure
          apply(before)
        end
      end

      def apply(mode)
        if @mode == :disable && mode != :disable
          @store = Jobs.swap_client(@client)
        elsif @mode != :disable && mode == :disable
          Jobs.swap_client(@store)
        end
        @mode = mode
        memory.inline = mode == :inline
      end
    end

    Job::ClassMethods.include(ClassMethods)
    # By its other name.
    Jobs.const_set(:Testing, self)
  end
end
