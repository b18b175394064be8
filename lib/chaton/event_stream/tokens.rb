# frozen_string_literal: true

require "monitor"

module Chaton
  module EventStream
    # What {EventStream.open} gives to its block. It may be used by several threads.
    class Tokens
      # Longest time for which a piece waits for others (s): shorter than what readers notice.
      DELAY_S = 0.05
      # Bytes that are not held back. The writer waits while they are added to the log.
      BYTES_MAX = 4096

      # @param name [String]
      # @private
      def initialize(name)
        @name = name
        @waiting = +""
        @superseded = false
        @lock = Monitor.new
        @changed = @lock.new_cond
      end

      # @private
      def run
        @begins_at = Live.client.begin(@name)
        flusher = Thread.new { flush_in_time }
        result = yield self
        finish("end")
        result
      rescue StandardError
        begin
          finish("failed")
        rescue StoreError
          nil # The first error says more.
        end
        raise
      ensure
        # What is interrupted says no end: the job runs again and begins with `reset`.
        close
        flusher&.join
      end

      # @param token [String] UTF-8; an incomplete character waits for its rest
      # @return [self]
      # @raise [StoreError] when the log cannot be written
      def <<(token)
        @lock.synchronize do
          raise @error if @error
          next if @superseded

          @waiting << token.to_s.dup.force_encoding(Encoding::UTF_8)
          next flush if @waiting.bytesize >= BYTES_MAX

          @changed.signal unless @due
          @due = true
        end
        self
      end

      # Whether another block says this text since, as when a job runs again because its worker was taken for dead. What
      # this one says is not sent any more; it may end.
      #
      # @return [Boolean]
      def superseded? = @superseded

      # Says at once what waits.
      #
      # @return [nil]
      # @raise [StoreError]
      def flush
        @lock.synchronize do
          @due = false
          text, rest = whole_characters
          say(text) unless text.empty?
          @waiting = +rest
        end
        nil
      end

      private

      # Inside of a job the transaction that is open must not hold the text back.
      def say(text, event = nil)
        @superseded = true unless @superseded || Live.client.append(@name, text, event, nil, @begins_at)
      end

      # @return [Array(String, String)] the text, and the begin of a character whose rest is still to come
      def whole_characters
        return [@waiting, ""] if @waiting.valid_encoding?

        # A character has up to four bytes.
        cut = (1..3).find { |bytes| @waiting.byteslice(0, @waiting.bytesize - bytes)&.valid_encoding? }
        return [@waiting.scrub, ""] unless cut

        [@waiting.byteslice(0, @waiting.bytesize - cut), @waiting.byteslice(-cut, cut)]
      end

      def flush_in_time
        @lock.synchronize do
          loop do
            @changed.wait_until { @due || @closed }
            @changed.wait(DELAY_S) unless @closed
            break if @closed

            flush if @due
          end
        end
      rescue StandardError => e
        @error = e # The writer gets it.
      end

      def finish(event)
        @lock.synchronize do
          raise @error if @error && event == "end"

          say(@waiting.scrub) unless @waiting.empty?
          @waiting = +""
          close
          say("", event)
        end
      end

      def close
        @lock.synchronize do
          @closed = true
          @changed.signal
        end
      end
    end
  end
end
