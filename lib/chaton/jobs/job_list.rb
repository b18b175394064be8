# frozen_string_literal: true

require_relative "record"

module Chaton
  module Jobs
    # A place where jobs wait, read page by page: it changes while it is read, so a job may be seen twice or
    # missed, and one that has gone answers false to whatever is done with it.
    class JobList
      include Enumerable

      # Jobs read at once.
      PAGE = 100

      # @return [String] as the native client names it
      attr_reader :place

      # @param place [String]
      # @param native [Native::JobsClient]
      def initialize(place, native = Jobs.client.native)
        @place = place
        @native = native
      end

      # @yieldparam job [Record]
      # @return [Enumerator, self]
      def each
        return enum_for(:each) { size } unless block_given?

        offset = 0
        loop do
          before = size
          page = @native.list(@place, offset, PAGE)
          page.each { |entry| yield Record.new(@native, @place, entry) }
          break if page.size < PAGE

          # What was removed meanwhile moved the rest forward.
          offset = [offset + PAGE - [before - size, 0].max, 0].max
        end
        self
      end

      # @param offset [Integer]
      # @param count [Integer]
      # @return [Array<Record>]
      def page(offset, count)
        @native.list(@place, offset, count).map { |entry| Record.new(@native, @place, entry) }
      end

      # @param jid [String]
      # @return [Record, nil]
      def find_job(jid)
        place, entry = @native.find(jid)
        Record.new(@native, place, entry) if place == @place
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

      # Jobs removed in one step, so that a store is not held for long.
      CLEAR_PAGE = 1_000
    end
  end
end
