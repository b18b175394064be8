# frozen_string_literal: true

require_relative "job_record"

module Chaton
  module Jobs
    # Stored jobs at one location, read page by page. The location changes meanwhile, so a job may be seen twice or
    # missed; calls on a job that is gone return false.
    class JobList
      include Enumerable

      # Jobs in one page.
      PAGE = 100

      # @return [String] queue:NAME, scheduled, retry or dead
      attr_reader :place
      # @return [Native::JobsClient]
      # @private
      attr_reader :native

      # @param place [String]
      # @param native [Native::JobsClient]
      def initialize(place, native = Jobs.client.native)
        @place = place
        @native = native
      end

      # @yieldparam job [JobRecord]
      # @return [Enumerator, self]
      def each
        return enum_for(:each) { size } unless block_given?

        offset = 0
        loop do
          before = size
          page = @native.list(@place, offset, PAGE)
          page.each { |entry| yield record(entry) }
          break if page.size < PAGE

          # Jobs removed meanwhile moved the rest forward.
          offset = [offset + PAGE - [before - size, 0].max, 0].max
        end
        self
      end

      # @param offset [Integer]
      # @param count [Integer]
      # @return [Array<JobRecord>]
      def page(offset, count)
        @native.list(@place, offset, count).map { |entry| record(entry) }
      end

      # @param jid [String]
      # @return [JobRecord, nil]
      def find_job(jid)
        place, entry = @native.find(jid)
        record(entry) if place == @place
      end

      # Removes all jobs.
      #
      # @return [Integer] how many
      def clear
        total = 0
        loop do
          gone = @native.clear(@place, CLEAR_PAGE)
          total += gone
          return total if gone < CLEAR_PAGE
        end
      end

      # Jobs removed in one call, so that a store is not locked for long.
      CLEAR_PAGE = 1_000

      private

      def record(entry) = JobRecord.new(@native, @place, entry)
    end
  end
end
