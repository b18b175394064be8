# frozen_string_literal: true

module Chaton
  # Reports failed jobs and batches to Rails.error (Rails 7.0 and later), to which error trackers subscribe. Rails'
  # executor cannot do it, because the error of a unit of work is rescued inside of it. From Rails 7.1 on Rails marks
  # an error that was reported, so one that ActiveJob has reported is not reported again.
  module RailsErrors
    class << self
      # @param source [String] "job.chaton" or "stream.chaton"
      def report(error, source, context, log:)
        return unless defined?(::Rails.error) && (reporter = ::Rails.error)

        reporter.report(error, handled: false, severity: :error, context: context,
                               **source_for(reporter.method(:report), source))
      rescue Exception => e # rubocop:disable Lint/RescueException -- a broken subscriber must not lose the work
        log.exception(e, "a subscriber of Rails.error failed")
      end

      # @param method [Method] of Rails, which takes a source since 7.1
      # @return [Hash{Symbol=>String}] its further keywords
      def source_for(method, source)
        method.parameters.any? { |kind, name| kind == :keyrest || name == :source } ? { source: source } : {}
      end
    end
  end
end
