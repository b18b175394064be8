# frozen_string_literal: true

require "chaton/errors"

module Chaton
  module Native
    # `rack.input` of a request whose body is streamed (`stream_bodies`): it is read while it arrives, and cannot be
    # rewound. The rest is native (`ext/chaton/src/web/streamed_body.rs`). A method that must wait for the client raises
    # {RequestBodyError} once the rest cannot arrive any more.
    class StreamedBody
      # Bytes that are taken at once at most.
      TAKE_BYTES = 64 * 1024
      private_constant :TAKE_BYTES

      # As IO#read: waits for `length` bytes, or for the end.
      def read(length = nil, buffer = nil)
        raise ArgumentError, "negative length #{length} given" if length&.negative?

        check_open
        text = take_ahead(length)
        while length.nil? || text.bytesize < length
          part = take(length ? [length - text.bytesize, TAKE_BYTES].min : TAKE_BYTES) or break
          text << part
        end
        ended = length&.positive? && text.empty?
        buffer&.replace(text)
        buffer || text unless ended
      end

      # As IO#readpartial: waits for the first bytes only.
      #
      # @raise [EOFError] at the end
      def readpartial(length, buffer = nil)
        check_open
        text = take_ahead(length)
        text = take(length) || raise(EOFError, "end of file reached") if text.empty? && length.positive?
        buffer ? buffer.replace(text) : text
      end

      # @return [String, nil] the next line
      def gets
        check_open
        line = take_ahead(nil)
        searched = 0
        until (feed = line.index("\n", searched))
          searched = line.bytesize
          part = take(TAKE_BYTES)
          return line.empty? ? nil : line unless part

          line << part
        end
        @ahead = line.slice!((feed + 1)..)
        line
      end

      # Yields the parts as they arrive, which are no lines.
      def each
        return enum_for(:each) unless block_given?

        check_open
        ahead = take_ahead(nil)
        yield ahead unless ahead.empty?
        while !closed? && (part = take(TAKE_BYTES))
          yield part
        end
        self
      end

      # The rest is not needed. The connection is closed after the response if it has not arrived by then.
      def close
        return if @closed

        @closed = true
        discard
      end

      def closed? = @closed || false

      # @return [Boolean] waits for the next bytes
      def eof?
        check_open
        @ahead = take(TAKE_BYTES) || "" if take_nothing?
        take_nothing?
      end

      def binmode = self

      def external_encoding = Encoding::BINARY

      private

      def check_open
        raise IOError, "closed stream" if @closed
      end

      def take_nothing? = @ahead.nil? || @ahead.empty?

      # What `gets` and `eof?` have taken too much.
      def take_ahead(length)
        ahead = @ahead || +"".b
        @ahead = length && ahead.bytesize > length ? ahead.slice!(length..) : nil
        ahead
      end
    end
  end
end
