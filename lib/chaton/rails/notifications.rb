# frozen_string_literal: true

require_relative "../telemetry/running_work"

module Chaton
  # Publishes requests, jobs, batches and ends of workers through ActiveSupport::Notifications, and through
  # Rails.event where that exists (Rails 8.1): docs/LOGS.md has the names and payloads. Without ActiveSupport nothing
  # is added to the way of a unit of work; without a subscriber, a look at the clock.
  class Notifications
    class << self
      # @param role [Symbol] :web, :jobs or :streams
      # @param handler [#call] runs a unit of work
      # @return [#call] the same, which publishes
      def around(role, handler, log:)
        return handler unless defined?(::ActiveSupport::Notifications)

        KINDS.fetch(role).new(handler, new(log)).method(:call)
      end

      # @return [Notifications, nil] nil without ActiveSupport
      def of(log) = (new(log) if defined?(::ActiveSupport::Notifications))
    end

    def initialize(log)
      @log = log
    end

    # @return [Boolean] whether anybody wants to know
    def wanted?(name) = ::ActiveSupport::Notifications.notifier.listening?(name) || reporter?

    # @param payload [Hash{Symbol=>Object}] the block may add to it
    # @return [Object] the block's result, whatever a subscriber does
    def publish(name, payload)
      began_s = now_s
      instrumenter = ::ActiveSupport::Notifications.instrumenter
      begun = guarded(name) { instrumenter.start(name, payload) || true }
      yield if block_given?
    ensure
      guarded(name) { instrumenter.finish(name, payload) } if begun
      guarded(name) { report(name, payload, began_s) } if reporter?
    end

    private

    def reporter?
      return false unless defined?(::Rails) && ::Rails.respond_to?(:event)

      reporter = ::Rails.event
      !reporter.nil? && (!reporter.respond_to?(:subscribers) || reporter.subscribers.any?)
    end

    # Only what can be written down.
    def report(name, payload, began_s)
      duration_ms = ((now_s - began_s) * 1000).round(3)
      ::Rails.event.notify(name, **payload.except(:env, :exception_object), duration_ms: duration_ms)
    end

    def guarded(name)
      yield
    rescue StandardError, ScriptError, SystemExit, SystemStackError => e
      @log.exception(e, "a subscriber of #{name} failed")
      nil
    end

    def now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Runs the units of one role. A subclass has NAME, and `facts(work)`.
    class Publisher
      # A subscriber is noticed after this time at the latest: asking ActiveSupport takes longer than the clock.
      ASK_AGAIN_S = 0.1

      def initialize(handler, notifications)
        @handler = handler
        @notifications = notifications
        @ask_at_s = 0
      end

      def call(work)
        wanted? && facts?(work) ? publish(work) : @handler.call(work)
      end

      private

      def wanted?
        now_s = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        return @wanted if now_s < @ask_at_s

        @ask_at_s = now_s + ASK_AGAIN_S
        @wanted = @notifications.wanted?(self.class::NAME)
      end

      def facts?(_work) = true

      def publish(work)
        payload = facts(work)
        @notifications.publish(self.class::NAME, payload) do
          running = Telemetry::RunningWork.of(Thread.current) || Telemetry::RunningWork.begin
          running.error = nil
          @handler.call(work)
        ensure
          failed(payload, running.error) if running.error
        end
      end

      # As ActiveSupport itself does.
      def failed(payload, error)
        payload.update(exception: [error.class.name, error.message], exception_object: error)
      end
    end

    # Of web. The response is known when it has been sent.
    class RequestPublisher < Publisher
      NAME = "request.chaton"

      private

      def facts(request)
        env = request.env
        payload = { request_id: Telemetry::RunningWork.context[:request_id], method: env["REQUEST_METHOD"],
                    path: env["PATH_INFO"], env: env }
        # The first one in the list is called last, after those of the application.
        (env["rack.response_finished"] ||= []) << lambda do |_env, status, _headers, error|
          payload[:status] = status
          failed(payload, error) if error
        end
        payload
      end
    end

    # Of jobs.
    class JobPublisher < Publisher
      NAME = "job.chaton"

      private

      def facts(job) = { class: job.display_class, jid: job.jid, queue: job.queue }
    end

    # Of streams; notices, such as of a revoked partition, are not published.
    class BatchPublisher < Publisher
      NAME = "batch.chaton"

      private

      def facts?(batch) = batch.kind == :records

      def facts(batch)
        { topic: batch.topic, partition: batch.partition, records: batch.size, batch: batch.describe }
      end
    end

    KINDS = { web: RequestPublisher, jobs: JobPublisher, streams: BatchPublisher }.freeze
    private_constant :KINDS
  end
end
