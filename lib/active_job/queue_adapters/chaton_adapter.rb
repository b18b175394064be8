# frozen_string_literal: true

require "active_job"
require "chaton/core"
require "chaton/rails/job_options"

ActiveSupport.on_load(:active_job) { include Chaton::JobOptions }

# Rails' module.
module ActiveJob
  # ActiveJob looks for adapters here.
  module QueueAdapters
    # Runs ActiveJob's jobs on Chaton: `config.active_job.queue_adapter = :chaton`.
    #
    # The jid is its `provider_job_id`. A class has the options of `chaton_options`, or keeps its `sidekiq_options`.
    # Whether a job waits for the commit of an open transaction is decided by Rails from 7.2 on
    # (`enqueue_after_transaction_commit`). Before, each does.
    class ChatonAdapter < (const_defined?(:AbstractAdapter) ? AbstractAdapter : Object)
      # The class that a worker runs. The name of the wrapped class is in the document too.
      class JobWrapper
        include Chaton::Job

        # Fiber-local key of the running job: its job_id and jid.
        RUNNING = :chaton_active_job

        # @param data [Hash] a serialized ActiveJob
        def perform(data)
          outer = Thread.current[RUNNING]
          Thread.current[RUNNING] = [data["job_id"], jid]
          ActiveJob::Base.execute(data.merge("provider_job_id" => jid))
        ensure
          Thread.current[RUNNING] = outer
        end
      end

      # Runs a class that was enqueued under its own name, by cron or `chaton jobs enqueue`, as ActiveJob does.
      class NamedJob < JobWrapper
        # @param job_class [Class]
        def initialize(job_class)
          super()
          @job_class = job_class
        end

        # @param arguments [Array] of the job
        def perform(*arguments) = super(@job_class.new(*arguments).serialize)
      end

      # Classes with their queues and priorities whose declarations are kept: more than an application has, unless
      # its queues' names are computed.
      DECLARED_MAX = 4_096

      def initialize
        super
        @declared = {}
      end

      # Rails 7.2 calls this, and then waits for the end of transactions itself, but for one that stores the job.
      def enqueue_after_transaction_commit? = !Chaton::Jobs.client.own_transaction?

      # Rails 8.1 asks between two steps of an ActiveJob::Continuable, later versions with the job.
      #
      # @return [Boolean] whether a long job should end soon and be enqueued again
      def stopping?(_job = nil) = Chaton::Jobs.stopping?

      # @return [String] its jid
      def enqueue(job) = push(job, nil)

      # @return [String] its jid
      def enqueue_at(job, timestamp) = push(job, timestamp.to_f)

      # Rails calls this since 7.1 for many jobs at once.
      #
      # @return [Integer] how many were enqueued
      def enqueue_all(jobs)
        jobs.group_by { |job| [declared(job), job.scheduled_at.nil?] }.sum do |(declared, now), group|
          times = group.map { |job| job.scheduled_at.to_f } unless now
          jids = Chaton::Jobs.client.many(declared, group.map { |job| [job.serialize] }, at: times)
          group.zip(jids) { |job, jid| mark(job, jid) }
          jids.count(&:itself)
        rescue Chaton::StoreError => e
          # The other groups may be stored already.
          refused(group, e)
        end
      end

      # Enqueues a job that another program had stored.
      #
      # @param connection [Object, nil] see {Chaton::Jobs::OwnTransaction#check}
      # @return [String, nil] its jid; nil: an equal unique job exists, or client middleware stopped it
      # @private
      def take_over(job, at: nil, connection: nil)
        Chaton::Jobs.client.one(known(job), [job.serialize], at, connection: connection)
      end

      # @return [Hash{String=>Object}] its document, without an id
      # @private
      def document(job) = known(job).item([job.serialize])

      private

      # Blocks for limits and locks get the arguments, which a job that was read has not looked at yet.
      def known(job)
        job.send(:deserialize_arguments_if_needed) if own_limits?(job) || job.class.chaton_options.any?
        declared(job)
      end

      # ActiveJob enqueues a retry as a further job with the same job_id, while the failed one runs.
      def push(job, at)
        job_id, running = Thread.current[JobWrapper::RUNNING]
        return push_retry(job, at, running) if job_id == job.job_id

        job.provider_job_id = enqueued(job) { Chaton::Jobs.client.one(declared(job), [job.serialize], at) }
      end

      # `retry_job` ignores an EnqueueError, and the job would be lost: so another error lets the running job fail.
      def push_retry(job, at, running)
        job.provider_job_id = Chaton::Jobs.client.one(declared(job), [job.serialize], at, retry_of: running)
      end

      # Tells ActiveJob in its own way that a job is not enqueued: since Rails 7 `perform_later` then returns false, and
      # the job has the error.
      def enqueued(job)
        jid = yield
        return jid if jid || !defined?(ActiveJob::EnqueueError)

        raise not_enqueued(job)
      rescue Chaton::StoreError => e
        raise unless defined?(ActiveJob::EnqueueError)

        raise not_enqueued(job, e.message)
      end

      def not_enqueued(job, why = nil)
        why ||= "client middleware stopped it, or it is unique (unique_for) and an equal job waits or runs"
        ActiveJob::EnqueueError.new("#{job.class} is not enqueued: #{why}")
      end

      def mark(job, jid, why = nil)
        job.provider_job_id = jid if jid
        # As old as `perform_all_later`.
        return unless job.respond_to?(:successfully_enqueued=)

        job.successfully_enqueued = !jid.nil?
        job.enqueue_error = not_enqueued(job, why) if jid.nil? && job.respond_to?(:enqueue_error=)
      end

      # @return [Integer] how many were enqueued
      def refused(jobs, error)
        jobs.each { |job| mark(job, nil, error.message) }
        0
      end

      # Computed once for each class, queue and priority. A class that was loaded again has another declaration.
      def declared(job)
        key = [job.class.name, job.queue_name, job.priority]
        owner, known = @declared[key]
        return known if owner.equal?(job.class)

        made = declaration(job)
        return made if own_limits?(job)

        @declared.clear if @declared.size >= DECLARED_MAX
        @declared[key] = [job.class, made]
        made
      end

      def declaration(job)
        changes = Chaton::Jobs::Options.of_active_job(job).merge("wrapped" => job.class.name)
        changes["enqueue_after_commit"] = :own if job.class.respond_to?(:enqueue_after_transaction_commit)
        changes = job.class.get_sidekiq_options.merge(changes) if job.class.respond_to?(:get_sidekiq_options)
        changes = job.class.chaton_options.merge(changes)
        limits = limits(job, changes["limit"])
        changes["limit"] = limits if limits.any?
        Chaton::Jobs::Declaration.new(JobWrapper, JobWrapper.declared.options.merge(changes))
      end

      # @return [Boolean] whether each job has limits by its arguments
      def own_limits?(job)
        given = [job.class.chaton_options["limit"]].flatten.compact
        job.class.concurrency_key || given.any? { |limit| (limit[:key] || limit["key"]).respond_to?(:call) }
      end

      # Blocks get the arguments of the job, not what is stored of them.
      #
      # @return [Array<Hash>]
      def limits(job, given)
        limits = given ? Chaton::Jobs::Limits.read(given, job.class.name) : []
        limits = limits.map do |limit|
          limit[:key].respond_to?(:call) ? limit.merge(key: limit[:key].call(*job.arguments)) : limit
        end
        key = job.concurrency_key
        key.to_s.empty? ? limits : [*limits, { concurrency: job.concurrency_limit, key: key }]
      end
    end
  end
end
