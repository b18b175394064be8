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
      # @return [Array<Hash>] documents of its waiting jobs, always the same Array
      def jobs = Testing.memory.by_class[name]

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

      # Runs an object of the class.
      def execute_job(instance, args) = instance.perform(*args)
    end

    # Takes the place of the process's client in threads with a mode.
    # @private
    module ClientSwitch
      def client = Testing.disabled? ? super : Testing.client
    end

    # Thread-local key of a block's mode.
    MODE = :chaton_testing

    @memory = JobsMemory.new
    @mode = :disable

    class << self
      # @return [JobsMemory]
      # @private
      attr_reader :memory

      # @return [Jobs::Client] writes documents in the format of the process's configuration, if it was read
      # @private
      def client
        format = Jobs.format
        @client = Jobs::Client.new(memory, format: format) unless @client&.format == format
        @client
      end

      # Keeps jobs in memory, from now on. With a block: while it runs, for jobs that its thread enqueues.
      def fake!(&block) = switch(:fake, &block)

      # Runs jobs when they are enqueued.
      def inline!(&block) = switch(:inline, &block)

      # Stores jobs.
      def disable!(&block) = switch(:disable, &block)

      def fake? = mode == :fake

      def inline? = mode == :inline

      def disabled? = mode == :disable

      def enabled? = !disabled?

      # @return [Symbol, nil] the mode of the block that this thread runs
      # @private
      def block_mode = Thread.current.thread_variable_get(MODE)

      # @return [Array<Hash>] documents of all waiting jobs
      def jobs = memory.jobs

      # Runs all jobs, and those they enqueue, until none is left.
      def drain_all = memory.drain

      # Removes all jobs.
      def clear_all = memory.clear

      private

      def mode = block_mode || @mode

      def switch(mode)
        return @mode = mode unless block_given?

        before = block_mode
        begin
          Thread.current.thread_variable_set(MODE, mode)
          yield
        ensure
          Thread.current.thread_variable_set(MODE, before)
        end
      end
    end

    Job::ClassMethods.include(ClassMethods)
    Jobs.singleton_class.prepend(ClientSwitch)
    Jobs.const_set(:Testing, self)
  end
end
