# frozen_string_literal: true

module Chaton
  module Web
    # `rack.input` of requests without a body. It has no state, so all of them share it.
    class NullInput
      # @return [String, nil] as IO#read at the end of a file
      def read(length = nil, buffer = nil)
        buffer&.clear
        return buffer || +"" if length.nil? || length.zero?

        nil
      end

      def gets(*) = nil

      def getbyte = nil

      def each(*) = block_given? ? self : [].each

      def rewind = 0

      def size = 0

      def pos = 0

      def eof? = true

      def close = nil

      def closed? = false

      def binmode = self

      def set_encoding(*) = self

      def external_encoding = Encoding::BINARY

      def sync = true

      # @return [Boolean]
      def sync=(value)
        value
      end
    end
  end
end
