# frozen_string_literal: true

require_relative "job"
require_relative "testing/streams"

module Chaton
  # For an application's tests: without a store, jobs are kept in memory or run when they are enqueued. See
  # {StreamsHelpers} for streams.
  #
  # @example
  #   require "chaton/testing"
  #   Chaton::Testing.fake!
  #   SomeJob.perform_async(1)
  #   SomeJob.jobs.size # => 1
  #   SomeJob.drain
  module Testing
    autoload :JobsMemory, "chaton/testing/jobs_memory"

    extend StreamsHelpers

    # No job of the class is waiting.
    class EmptyQueueError < Error; end

    # Methods of job classes in tests.
    module ClassMethods
      # @return [Array<Hash>] documents of its waiting jobs
      def jobs = Testing.memory.jobs_of(name)

      # Removes its jobs.
      def clear = Testing.memory.clear(name)

      # Runs its jobs, and those they enqueue, until none is left.
      def drain = Testing.memory.drain(name)

      # Runs its first job.
      #
      # @raise [EmptyQueueError]
      def perform_one
        Testing.memory.run_first(name) or raise EmptyQueueError, "no job of #{name} is waiting"
      end

      # Runs a job from its document.
      #
      # @param item [Hash{String=>Object}]
      def process_job(item) = Jobs::Inline.perform(item)
    end

    @memory = JobsMemory.new
    @client = Jobs::Client.new(@memory)
    @mode = :disable

    class << self
      # @return [JobsMemory]
      # @private
      attr_reader :memory

      # Keeps jobs in memory, from now on or during the block.
      def fake!(&block) = switch(:fake, &block)

      # Runs jobs when they are enqueued.
      def inline!(&block) = switch(:inline, &block)

      # Stores jobs.
      def disable!(&block) = switch(:disable, &block)

      # @return [Boolean]
      def fake? = @mode == :fake

      # @return [Boolean]
      def inline? = @mode == :inline

      # @return [Boolean]
      def disabled? = @mode == :disable

      # @return [Boolean]
      def enabled? = !disabled?

      # @return [Array<Hash>] documents of all waiting jobs
      def jobs = memory.jobs

      # Runs all jobs, and those they enqueue, until none is left.
      def drain_all = memory.drain

      # Removes all jobs.
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
    Jobs.const_set(:Testing, self)
  end
end
