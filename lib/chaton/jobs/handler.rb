# frozen_string_literal: true

require "json"
require_relative "../errors"
require_relative "../jobs"
require_relative "../job"
require_relative "class_entry"
require_relative "failures"
require_relative "sidekiq_gem"

module Chaton
  module Jobs
    # Runs one job. Whatever the job does, it is settled: done, retried, dead or back in its queue. What is
    # the same for all jobs of a class is found out once; the document is parsed only where something reads it.
    class Handler
      # Where a thread keeps the batch of the job that it runs, so that a batch made there is nested.
      PARENT = :chaton_parent_batch

      # @param log [Telemetry::Log]
      # @param plan [Config::Plan, nil]
      # @param setup [Setup]
      def initialize(log:, plan: nil, setup: Jobs.setup)
        @log = log
        @setup = setup
        @failures = Failures.new(log: log, setup: setup, retries_max: plan&.jobs&.retries_max,
                                 format: plan&.jobs&.format || Failures::FORMAT)
        @debug = log.level == :debug
        @entries = {}
        @reloader = reloader
        @pid = ::Process.pid
      end

      # @param job [Native::Job]
      # @return [void]
      def call(job)
        started_s = monotonic_s
        @reloader ? @reloader.wrap { run(job, started_s) } : run(job, started_s)
      rescue Exception => e # rubocop:disable Lint/RescueException -- Rails' own wrapping failed
        settle_failed(job, e, nil, started_s)
      ensure
        # Still open only when the thread is being killed.
        settle_killed(job, started_s) if job.open?
      end

      private

      def run(job, started_s)
        return push_due(job) if job.due?

        entry = @entries[job.class_name] ||= ClassEntry.new(job.class_name)
        instance = entry.instance(job)
        @log.debug("job started", class: job.class_name, jid: job.jid, queue: job.queue) if @debug
        unlock(job) if entry.unlocks_first?
        job.bid ? perform_in_batch(job, instance) : perform(job, instance)
        # An interrupted iteration has sent itself back.
        job.ack if job.open?
        log_done(job, started_s) if @debug
      rescue Exception => e # rubocop:disable Lint/RescueException -- `exit` in a job must not end the worker
        settle_failed(job, e, instance, started_s)
      end

      # The engine gives such a lock up too, but while the job runs already: what is changed in that moment would be
      # seen neither by this job nor by the one that the lock turned away.
      def unlock(job)
        key = JSON.parse(job.payload, max_nesting: false).dig("chaton", "lock")
        Jobs.client.native.unlock(key, job.jid) if key
      rescue StoreError => e
        @log.exception(e, "a lock was not given up before its job began; it is soon after", jid: job.jid)
      end

      def perform(job, instance)
        gem_chain = SidekiqGem.server_chain
        return instance.perform(*job.args) if gem_chain.nil? && @setup.server_middleware.empty?

        hash = JSON.parse(job.payload, max_nesting: false)
        queue = job.queue
        work = -> { instance.perform(*hash["args"]) }
        @setup.server_middleware.invoke(instance, hash, queue) do
          gem_chain ? gem_chain.invoke(instance, hash, queue, &work) : work.call
        end
      end

      def perform_in_batch(job, instance)
        Thread.current[PARENT] = job.bid
        perform(job, instance)
      ensure
        Thread.current[PARENT] = nil
      end

      # A scheduled job or a retry whose time has come: client middleware sees it again, as with Sidekiq.
      def push_due(job)
        item = JSON.parse(job.payload, max_nesting: false)
        stored = Jobs.client.push_due(item)
        job.ack
        @log.info("client middleware stopped a due job", class: job.class_name, jid: job.jid) unless stored
      rescue Exception => e # rubocop:disable Lint/RescueException -- it must not get lost
        @log.exception(e, "a due job could not be pushed; it is tried again", class: job.class_name, jid: job.jid)
        job.reschedule(Clock.now_s + Failures::AGAIN_S) if job.open?
      end

      def settle_failed(job, error, instance, started_s)
        leave_child(job, error) if ::Process.pid != @pid
        @failures.settle(job, error, instance, monotonic_s - started_s) if job.open?
      rescue Exception => e # rubocop:disable Lint/RescueException -- a job is never left open
        @log.exception(e, "settling a failed job failed; it is run again later", jid: job.jid)
        # Not at once: what fails here would fail again.
        job.reschedule(Clock.now_s + Failures::AGAIN_S) if job.open?
      end

      # A child that a job forked without a block came back out of the job. It is no worker, and what becomes of the
      # job is its parent's business: nobody is told that it failed.
      def leave_child(job, error)
        ::Process.exit!(error.status) if error.is_a?(SystemExit)
        # That was the acknowledgement: the child went through to the job's end.
        ::Process.exit!(0) if error.is_a?(ForkedError)

        @log.exception(error, "a child that a job forked failed; the job itself goes on", jid: job.jid)
        ::Process.exit!(1)
      end

      def settle_killed(job, started_s)
        return job.requeue if Jobs.stopping?

        settle_failed(job, Killed.new("the thread was killed while it ran the job"), nil, started_s)
      end

      def log_done(job, started_s)
        @log.debug("job done", class: job.class_name, jid: job.jid, queue: job.queue,
                               seconds: (monotonic_s - started_s).round(3))
      end

      # Rails' reloader also runs the executor. Code that is loaded anew brings new classes of the same names.
      def reloader
        return unless defined?(::Rails.application) && ::Rails.application

        entries = @entries
        ::Rails.application.reloader.tap { |reloader| reloader.before_class_unload { entries.clear } }
      end

      def monotonic_s = ::Process.clock_gettime(::Process::CLOCK_MONOTONIC)
    end

    # Stands for an error where a job's thread was killed.
    class Killed < Error; end
  end
end
