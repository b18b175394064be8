# frozen_string_literal: true

require "json"
require_relative "clock"
require_relative "error_report"

module Chaton
  module Jobs
    # A stored job.
    class JobRecord
      # @return [String] its location, see {JobList#place}
      attr_reader :place
      # @return [String] its document
      attr_reader :payload

      # @param native [Native::JobsClient]
      # @param place [String]
      # @param entry [Array(Float, Integer, String)] as the native client lists it
      def initialize(native, place, entry)
        @native = native
        @place = place
        @entry = entry
        @payload = entry[2]
      end

      # @return [Hash{String=>Object}] the parsed document; empty when it is malformed
      def item
        @item ||= parse
      end

      # @return [Object] a member of the document
      def [](name) = item[name]

      # @return [String, nil]
      def jid = item["jid"]

      # @return [String, nil]
      def queue = item["queue"]

      # @return [String, nil] its class; of an ActiveJob the wrapped one
      def job_class = item["display_class"] || item["wrapped"] || item["class"]

      # @return [Array] the arguments as that class gets them
      def args
        given = item["args"] || []
        return given unless item["wrapped"] && given.first.is_a?(Hash)

        given.first["arguments"] || given
      end

      # @return [Time, nil] when it is due, or died
      def at = @entry[0].positive? ? Time.at(@entry[0]) : nil

      # @return [Time, nil]
      def created_at = time("created_at")

      # @return [Time, nil]
      def enqueued_at = time("enqueued_at")

      # @return [Time, nil]
      def failed_at = time("failed_at")

      # @return [Array<String>, nil] of the last failure, if the class keeps it
      def error_backtrace
        return @error_backtrace if defined?(@error_backtrace)

        @error_backtrace = ErrorReport.lines(item["error_backtrace"])
      end

      # @return [Boolean] false when it was gone, as for the methods below
      def delete = @native.remove(@place, @entry)

      # Sends it to its queue now.
      #
      # @return [Boolean]
      def retry = @native.requeue(@place, @entry)

      # Moves it to the dead set.
      #
      # @return [Boolean]
      def kill = @native.kill(@place, @entry)

      # Gives a scheduled, failed or dead job another time.
      #
      # @param at [Time, Numeric] seconds since 1970
      # @return [Boolean]
      def reschedule(at)
        @native.reschedule(@place, @entry, at.to_f).tap { |there| @entry = [at.to_f, *@entry.drop(1)] if there }
      end

      private

      def parse
        parsed = JSON.parse(@payload, max_nesting: false)
        parsed.is_a?(Hash) ? parsed : {}
      rescue JSON::ParserError
        {}
      end

      def time(name)
        seconds = Clock.seconds(item[name])
        seconds && Time.at(seconds)
      end
    end
  end
end
