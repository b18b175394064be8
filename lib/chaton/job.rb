# frozen_string_literal: true

require_relative "jobs"
require_relative "jobs/clock"
require_relative "jobs/declaration"

module Chaton
  # Makes a class a background job.
  #
  # @example
  #   class ResizeJob
  #     include Chaton::Job
  #     options queue: "images", retry: 5
  #     retry_in { |count, error| 30 * (count + 1) if error.is_a?(Busy) }
  #
  #     def perform(id, width) = Image.find(id).resize(width)
  #   end
  #   ResizeJob.perform_async(7, 640)
  #   ResizeJob.set(queue: "low").perform_in(60, 7, 640)
  module Job
    # @private
    def self.included(base)
      if base.ancestors.any? { |ancestor| ancestor.name == "ActiveJob::Base" }
        raise ArgumentError, "#{base} is an ActiveJob, which has an interface of its own: leave out Chaton::Job, " \
                             "and set `queue_adapter = :chaton`"
      end
      base.extend(ClassMethods)
    end

    # @return [String, nil] this job's id, 24 hexadecimal digits
    def jid = @jid || @native_job&.jid

    attr_writer :jid

    # @return [String, nil] id of the batch this job belongs to
    def bid = @bid || @native_job&.bid

    attr_writer :bid

    # @return [Batch, nil] the batch this job belongs to
    def batch
      bid = self.bid
      bid && Batch.new(bid)
    end

    # @return [#info, #warn, #error]
    def logger = Jobs.logger

    # @return [Boolean] whether this job was cancelled or its deadline is over. A long job asks this now and then,
    #   and returns. The call is cheap.
    def cancelled?
      job = @native_job
      job ? job.cancelled? || job.deadline_over? : false
    end

    # @return [Boolean] whether its worker stops. A job that runs for minutes asks this now and then, and raises or
    #   enqueues the rest. False without a worker.
    def interrupted? = @native_job ? Jobs.stopping? : false

    # @param value [Native::Job] the claimed job that this object runs
    # @private
    attr_writer :native_job

    # Methods of a job class.
    module ClassMethods
      # Options of a class that sets none.
      DEFAULTS = Jobs::Options::DEFAULTS.merge("enqueue_after_commit" => true).freeze

      # Sets options, or returns the current ones. They are inherited. Where another library has a class method of this
      # name, write {#job_options}.
      #
      # | option | meaning |
      # |---|---|
      # | `queue:` | its queue, "default" |
      # | `retry:` | true (25 times), false, or how often |
      # | `retry_for:` | seconds after the first failure in which it is retried, any number of times |
      # | `retry_queue:` | the queue for retries |
      # | `dead: false` | a job that failed for good is not kept in the dead set |
      # | `backtrace:` | true or how many lines of an error's backtrace are kept |
      # | `tags:` | words shown with the job |
      # | `expires_in:` | seconds after which it is no longer started |
      # | `unique_for:` | seconds for which an equal job is not enqueued while this one waits or runs |
      # | `unique_until:` | :success (the default) or :start |
      # | `limit:` | `{key:, concurrency: 5}`, `{key:, rate: 10, per: 60}` or `{key:, bucket: 10, per: 60}` |
      # | `deadline:` | seconds after which {Job#cancelled?} returns true |
      # | `enqueue_after_commit: false` | do not wait for ActiveRecord's transactions |
      # | `transaction: true` | the job is one transaction, where its store is ActiveRecord's PostgreSQL |
      #
      # Any other key is kept in the job's document.
      #
      # @return [Hash{String=>Object}] frozen
      # @raise [ArgumentError] for a misspelt option, and for a wrong value
      def options(given = nil)
        return declare(check_options(given)) if given

        declared.options
      end

      # The same under a name that no other library gives to its classes.
      alias job_options options

      # Sets how long to wait before a retry. The block returns seconds, :kill (no more retries), :discard (drop the
      # job) or nil (the usual time).
      #
      # @yieldparam count [Integer] 0 for the first retry
      # @yieldparam error [Exception]
      # @yieldparam job [Hash]
      def retry_in(&block)
        @retry_in = block
      end

      # Sets a block to call when a job failed for good.
      #
      # @yieldparam job [Hash]
      # @yieldparam error [Exception]
      def retries_exhausted(&block)
        @retries_exhausted = block
      end

      # Enqueues a job.
      #
      # @param args [Array] plain values, as JSON has them
      # @return [String, nil] its jid; nil when middleware stopped it or an equal job exists (`unique_for`)
      # @raise [ArgumentError] for an argument that does not come back equal from JSON
      # @raise [StoreError] when it could not be stored
      def perform_async(*args) = Jobs.client.one(declared, args)

      # Enqueues a job for later.
      #
      # @param interval [Numeric, Time] seconds from now, or a time
      # @return [String, nil] as {#perform_async}
      def perform_in(interval, *args) = Jobs.client.one(declared, args, Jobs::Clock.due(interval))
      alias perform_at perform_in

      # Enqueues many jobs in few round trips.
      #
      # @param lists [Enumerable<Array>] the arguments of each
      # @param at [Numeric, Array<Numeric>, nil] when they are due: one time for all, or one for each
      # @param batch_size [Integer] jobs in one round trip
      # @param more [Hash] `spread_interval:` (seconds): each is due at a random time within it
      # @return [Array<String>] jids of the stored jobs
      def perform_bulk(lists, at: nil, batch_size: Jobs::Client::BATCH_SIZE, **more)
        Jobs.client.many(declared, lists, at: at, batch_size: batch_size, **more).compact
      end

      # Runs the job at once in this thread, inside all middleware.
      #
      # @return [true, nil] nil when middleware stopped it
      def perform_inline(*args) = Jobs::Inline.run(self, declared, args)
      alias perform_sync perform_inline

      # @param options [Hash] see {#options}, and `wait:`, `wait_until:`, `sync: true`
      # @return [Jobs::Setter] enqueues with these options
      def set(options = {}) = Jobs::Setter.new(self, declared, options)

      # @return [Jobs::Declaration] the common part of all its jobs
      # @private
      def declared
        @declared ||= Jobs::Declaration.new(self, merged_options)
      end

      # Sidekiq's names, for gems written for it.
      #
      # @return [Hash{String=>Object}]
      def get_sidekiq_options = declared.public_options

      # @return [Proc, nil]
      def sidekiq_retry_in_block = @retry_in || inherited_from(:sidekiq_retry_in_block)

      # @return [Proc, nil]
      def sidekiq_retries_exhausted_block
        @retries_exhausted || inherited_from(:sidekiq_retries_exhausted_block)
      end

      # @private
      def check_options(given) = Jobs::Options.checked(given, name || "a job class")

      # @return [Hash{String=>Object}] its own options and those it inherits
      # @private
      def merged_options
        inherited = inherited_from(:merged_options) || job_defaults
        @job_options ? inherited.merge(@job_options).freeze : inherited
      end

      # Drops the declarations made from the old options.
      # @private
      def forget_declared
        @declared = nil
        subclasses.each(&:forget_declared)
      end

      private

      def declare(given)
        @job_options = (@job_options || {}).merge(given).freeze
        forget_declared
        declared.options
      end

      def job_defaults = DEFAULTS

      def inherited_from(name)
        superclass.respond_to?(name) ? superclass.public_send(name) : nil
      end
    end
  end
end
