# frozen_string_literal: true

require_relative "../jobs"
require_relative "../rails/errors"

module Chaton
  module Streams
    # Ends failed batches, and logs what the engine decides about them.
    class Failures
      # Characters of a message that are given to the engine, which may write them into a header.
      MESSAGE_MAX = 10_000
      # What Rails.error is told about where an error comes from.
      SOURCE = "stream.chaton"
      # What Rails.error is told about a failed batch or hook.
      TOLD = %i[consumer hook topic partition offset attempt].freeze

      def initialize(log:, handlers: Streams.error_handlers)
        @log = log
        @handlers = handlers
      end

      # Ends a failed batch.
      #
      # @param given [Native::Batch, Selection, nil] the records that the consumer got
      # @param seconds [Float] how long it ran
      def fail(batch, error, given, consumer:, seconds:)
        # Read before the batch ends.
        facts = { consumer: consumer, **facts(batch, given), seconds: seconds.round(3) }
        verdict = batch.failed(error.class.name || "an error without a name", message(error))
        sentence, more = describe(verdict)
        @log.exception(error, sentence, **facts, **more)
        report(error, { **facts, verdict: verdict })
      end

      # Logs a failed hook.
      def of_hook(batch, error, hook)
        facts = { hook: hook, topic: batch.topic, partition: batch.partition }
        @log.exception(error, "a hook of a consumer failed", **facts)
        report(error, facts)
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

      def describe(verdict)
        kind, first, second = verdict
        case kind
        when :retry then ["a batch failed; it is retried", { retry_in_s: first.round(3), next_attempt: second }]
        when :isolated
          ["a batch failed for the last time; its records are retried one by one", { retry_in_s: first.round(3) }]
        when :dead_letter then ["a record failed for the last time; it becomes a dead letter", { to: first }]
        when :dropped then ["a batch failed while its partition was being given up; its records are read again", {}]
        else ["a batch failed after all of its records were marked", {}]
        end
      end

      def message(error) = Jobs::ErrorReport.message(error)[0, MESSAGE_MAX]

      def report(error, facts)
        RailsErrors.report(error, SOURCE, facts.slice(*TOLD), log: @log)
        @handlers.each do |handler|
          handler.call(error, facts)
        rescue Exception => e # rubocop:disable Lint/RescueException -- one broken handler is not the worker
          @log.exception(e, "an error handler failed")
        end
      end
    end
  end
end
