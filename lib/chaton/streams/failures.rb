# frozen_string_literal: true

require_relative "../jobs"

module Chaton
  module Streams
    # What happens to batches that failed: the engine decides, and it is written down what it decided.
    class Failures
      # Characters of a message that go to the engine, which may put them into a header.
      MESSAGE_MAX = 10_000

      # @param log [Telemetry::Log]
      # @param handlers [Array<#call>]
      def initialize(log:, handlers: Streams.error_handlers)
        @log = log
        @handlers = handlers
      end

      # Ends a batch that failed.
      #
      # @param batch [Native::Batch]
      # @param error [Exception]
      # @param given [Native::Batch, Selection, nil] what the consumer was given
      # @param consumer [String]
      # @param seconds [Float] how long it ran
      def settle(batch, error, given, consumer:, seconds:)
        # Asked before it is ended.
        facts = { consumer: consumer, **facts(batch, given), seconds: seconds.round(3) }
        verdict = batch.failed(error.class.name || "an error without a name", message(error))
        sentence, more = told(verdict)
        @log.exception(error, sentence, **facts, **more)
        tell(error, { **facts, verdict: verdict })
      end

      # A hook failed.
      #
      # @param batch [Native::Batch]
      # @param error [Exception]
      # @param hook [String]
      def of_hook(batch, error, hook)
        facts = { hook: hook, topic: batch.topic, partition: batch.partition }
        @log.exception(error, "a hook of a consumer failed; the partition is let go of all the same", **facts)
        tell(error, facts)
      end

      private

      def facts(batch, given)
        facts = { topic: batch.topic, partition: batch.partition }
        facts[:offsets] = "#{batch.first_offset}-#{batch.last_offset}" if batch.size.positive?
        offset = given&.current_offset
        facts[:offset] = offset if offset
        facts[:attempt] = batch.attempt
        facts
      end

      def told(verdict)
        kind, first, second = verdict
        case kind
        when :retry then ["a batch failed; it is tried again", { again_in_s: first.round(3), next_attempt: second }]
        when :isolated
          ["a batch failed for the last time; its records are tried one by one", { again_in_s: first.round(3) }]
        when :dead_letter then ["a record failed for the last time; it goes to the dead letters", { to: first }]
        when :dropped then ["a batch failed whose partition is no longer ours; another member gets it", {}]
        else ["a batch failed; all of it was done before", {}]
        end
      end

      def message(error) = Jobs::ErrorReport.message(error)[0, MESSAGE_MAX]

      def tell(error, facts)
        @handlers.each do |handler|
          handler.call(error, facts)
        rescue Exception => e # rubocop:disable Lint/RescueException -- one broken handler is not the worker
          @log.exception(e, "an error handler failed")
        end
      end
    end
  end
end
