# frozen_string_literal: true

require "json"
require_relative "../errors"
require_relative "../jobs"
require_relative "../job"
require_relative "../work_handler"
require_relative "job_class"
require_relative "failures"
require_relative "sidekiq_gem"

module Chaton
  module Jobs
    # Runs one job and gives it an outcome, whatever the job does. Classes are examined once; the document is parsed
    # only when middleware or a failure needs it.
    class Handler < WorkHandler
      # Thread-local key of the running job's batch: a batch made in the job is nested in it.
      PARENT = :chaton_parent_batch
      SHUTDOWN = Shutdown
      SOURCE = Failures::SOURCE
      # Logged in a child that a job forked.
      CHILD_FAILED = "a child that a job forked failed; the job itself goes on"

      def initialize(log:, plan: nil, setup: Jobs.setup)
        super(log: log)
        @setup = setup
        @failures = Failures.new(log: log, setup: setup, retries_max: plan&.jobs&.retries_max,
                                 format: plan&.jobs&.format || Clock::FORMAT)
        @classes = {}
      end

      # With the sidekiq gem, lines of its logger name the job. Whether it is loaded is asked here and in {#perform}
      # without calling a method, which small jobs would notice: as {SidekiqGem.loaded?} does.
      def call(job)
        return super if !defined?(::Sidekiq::VERSION) || defined?(::Sidekiq::CHATON)

        SidekiqGem.with_context(class: job.display_class, jid: job.jid) { super }
      end

      private

      def run(job, started_s)
        return push_due(job) if job.due?

        job_class = @classes[job.class_name] ||= JobClass.new(job.class_name)
        instance = job_class.instance(job)
        @log.debug("job started", **facts(job)) if @debug
        names = job_class.lost_options(job) and warn_of_lost(names, job)
        unlock(job) if job_class.unlocks_first?
        job.bid ? perform_in_batch(job, instance, job_class) : perform(job, instance, job_class)
        # An interrupted iteration has requeued itself.
        end_job(job) if job.open?
      rescue Exception => e # rubocop:disable Lint/RescueException -- `exit` in a job must not end the worker
        fail_work(job, e, instance, started_s)
      end

      def end_job(job)
        held = Transaction.take(job)
        held ? held.end_job : job.ack
      end

      def warn_of_lost(names, job)
        @log.warn("options of the class have no effect on this job: the sidekiq gem enqueued it in a process that " \
                  "does not run in Chaton, or with a version that Chaton does not know; said once",
                  class: job.class_name, options: names.join(","), jid: job.jid)
      end

      # The engine releases such a lock too, but only while the job runs already. A change made in between would be
      # seen neither by this job nor by the job that the lock refused.
      def unlock(job)
        key = JSON.parse(job.payload, max_nesting: false).dig("chaton", "lock")
        Jobs.client.native.unlock(key, job.jid) if key
      rescue StoreError => e
        @log.exception(e, "a lock was not released before its job began; it will be soon after", jid: job.jid)
      end

      def perform(job, instance, job_class)
        gem_chain = SidekiqGem.server_chain if defined?(::Sidekiq::VERSION) && !defined?(::Sidekiq::CHATON)
        plain = gem_chain.nil? && @setup.server_middleware.empty?
        return instance.perform(*job.args) if plain && !job_class.in_transaction?
        return Transaction.work { instance.perform(*job.args) } if plain

        hash = Telemetry::Traces.into(JSON.parse(job.payload, max_nesting: false))
        queue = job.queue
        perform = -> { instance.perform(*hash["args"]) }
        work = job_class.in_transaction? ? -> { Transaction.work(&perform) } : perform
        @setup.server_middleware.invoke(instance, hash, queue) do
          gem_chain ? gem_chain.invoke(instance, hash, queue, &work) : work.call
        end
      end

      def perform_in_batch(job, instance, job_class)
        Thread.current[PARENT] = job.bid
        perform(job, instance, job_class)
      ensure
        Thread.current[PARENT] = nil
      end

      # Runs client middleware on a due job or retry and pushes it, as Sidekiq does. One that could not be pushed is in
      # its set again.
      def push_due(job)
        item = JSON.parse(job.payload, max_nesting: false)
        stored = Jobs.client.push_due(item)
        stored ? job.ack : job.discard
        @log.info("client middleware stopped a due job", class: job.class_name, jid: job.jid) unless stored
      rescue Exception => e # rubocop:disable Lint/RescueException -- the job must not be lost
        @log.exception(e, "a due job could not be pushed; it is tried again", class: job.class_name, jid: job.jid)
        job.reschedule(Clock.now_s + Failures::AGAIN_S) if job.open?
      end

      # A class that this release does not know is no failure of the job: another release may know it.
      def handle_failure(job, error, instance, seconds)
        return unless job.open?
        return @failures.handle_unknown(job, error) if instance.nil? && error.is_a?(UnknownClass)

        @failures.handle(job, error, instance, seconds)
      end

      # Not at once: it would fail again.
      def run_again(job, error)
        @log.exception(error, "a failed job could not be handled; it is run again later", jid: job.jid)
        job.reschedule(Clock.now_s + Failures::AGAIN_S) if job.open?
      end

      def killed(job, started_s)
        return job.requeue if Jobs.stopping?

        fail_work(job, Killed.new("the thread was killed while it ran the job"), nil, started_s)
      end

      # The engine has given it its outcome.
      def given_up?(job) = !job.open?

      def facts(job) = { class: job.class_name, jid: job.jid, queue: job.queue }

      def forget_classes = @classes.clear
    end

    # The error of a job whose thread was killed.
    class Killed < Error; end
  end
end
