# frozen_string_literal: true

require "active_support/concern"
require "active_support/core_ext/class/attribute"

module Chaton
  # Class methods of ActiveJob::Base: what a job of Chaton can that ActiveJob has no name for. Other adapters ignore it.
  module JobOptions
    extend ActiveSupport::Concern

    # Options of {Job::ClassMethods#options} that ActiveJob sets in its own way.
    ELSEWHERE = { "queue" => "queue_as", "enqueue_after_commit" => "enqueue_after_transaction_commit" }.freeze

    included do
      class_attribute :chaton_job_options, instance_accessor: false, default: {}.freeze
      # Solid Queue's, which its own module sets too.
      class_attribute :concurrency_key, :concurrency_group, instance_accessor: false
      class_attribute :concurrency_limit, :concurrency_duration
    end

    # What Chaton.transaction holds is not written for a job that `retry_on` or `discard_on` ends.
    #
    # @private
    def rescue_with_handler(exception)
      Transaction.drop
      super
    end

    # Methods of a job class.
    module ClassMethods
      # Sets options, which are inherited: `unique_for:`, `unique_until:`, `limit:`, `expires_in:`, `deadline:`,
      # `transaction:`, `retry:`, `tags:` and the others of {Job::ClassMethods#options}. Blocks get the job's arguments.
      #
      # @example
      #   class SyncJob < ApplicationJob
      #     chaton_options unique_for: 10.minutes, limit: { concurrency: 2, key: ->(account) { account.id } }
      #   end
      # @return [Hash{String=>Object}] the options
      # @raise [ArgumentError] for a misspelt option, and for a wrong value
      def chaton_options(**given)
        return chaton_job_options if given.empty?

        given = Jobs::Options.checked(given, name || "a job class")
        key = (ELSEWHERE.keys & given.keys).first
        raise ArgumentError, "#{name}: chaton_options takes no #{key}:; write #{ELSEWHERE[key]}" if key

        run_in_transactions if given["transaction"] && !chaton_job_options.key?("transaction")
        self.chaton_job_options = chaton_job_options.merge(given).freeze
      end

      # Callbacks that are declared before it run outside of the transaction, and so do `retry_on` and `discard_on`.
      def run_in_transactions
        around_perform do |job, block|
          job.class.chaton_options["transaction"] ? Transaction.work(&block) : block.call
        end
      end
      private :run_in_transactions

      # Runs at most some jobs of equal keys at once, as Solid Queue does; more of them wait.
      #
      # @param key [String, Symbol, Proc] a Proc runs in the job and gets its arguments
      # @param group [String, Proc] what the key belongs to; nil: the class
      # @param duration [ActiveSupport::Duration, nil] has no effect: what a process that died has held is free at once
      # @param on_conflict [Symbol] only :block
      # @raise [ArgumentError]
      def limits_concurrency(key:, to: 1, group: nil, duration: nil, on_conflict: :block)
        unless on_conflict.to_s == "block"
          raise ArgumentError, "#{name}: limits_concurrency has no on_conflict: #{on_conflict.inspect} here; for " \
                               "jobs that are not enqueued twice write chaton_options unique_for: 10.minutes"
        end

        Jobs::Limits.read({ concurrency: to }, name || "a job class")
        self.concurrency_key = key
        self.concurrency_group = group
        self.concurrency_limit = to
        self.concurrency_duration = duration
      end
    end

    # @return [String, nil] the key of {ClassMethods#limits_concurrency} for these arguments
    def concurrency_key
      key = chaton_value(self.class.concurrency_key)
      return if key.nil?

      # As Solid Queue writes it.
      key = [key.class.name, key.id].join("/") if key.respond_to?(:to_global_id)
      [chaton_value(self.class.concurrency_group) || self.class.name, key].compact.join("/")
    end

    private

    def chaton_value(given) = given.respond_to?(:call) ? instance_exec(*arguments, &given) : given
  end
end
