# frozen_string_literal: true

require_relative "../job"

module Sidekiq
  # Makes a class a job, with Sidekiq's method names.
  module Job
    # @private
    def self.included(base)
      base.include(Chaton::Job)
      base.extend(ClassMethods)
    end

    # Sidekiq's names of class methods.
    module ClassMethods
      # Sets options; any key is allowed.
      #
      # @return [Hash{String=>Object}]
      def sidekiq_options(given = {}) = declare(check_options(given))

      # As Chaton's `retry_in`.
      def sidekiq_retry_in(&block) = retry_in(&block)

      # As Chaton's `retries_exhausted`.
      def sidekiq_retries_exhausted(&block) = retries_exhausted(&block)

      # Sidekiq's short form of `sidekiq_options queue:`.
      # @param name [String, Symbol]
      def queue_as(name) = sidekiq_options("queue" => name.to_s)

      # @param item [Hash]
      # @return [String, nil]
      def client_push(item) = Chaton::Jobs.client.push(item.transform_keys(&:to_s))

      # @return [Hash{String=>Object}]
      def sidekiq_options_hash = get_sidekiq_options

      # Sidekiq allows any key.
      # @private
      def check_options(given) = given.transform_keys(&:to_s)

      private

      def job_defaults = Sidekiq.default_job_options
    end
  end
  Worker = Job

  # A job that can be interrupted between two items.
  module IterableJob
    # @private
    def self.included(base)
      base.include(Job)
      base.include(Chaton::IterableJob)
    end
  end
  Job::Iterable = IterableJob
end
