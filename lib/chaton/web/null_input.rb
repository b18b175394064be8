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

      # @return [nil]
      def gets(*) = nil

      # @return [nil]
      def getbyte = nil

      # @return [self]
      def each(*) = block_given? ? self : [].each

      # @return [Integer]
      def rewind = 0

      # @return [Integer]
      def size = 0

      # @return [Integer]
      def pos = 0

      # @return [Boolean]
      def eof? = true

      # @return [nil]
      def close = nil

      # @return [Boolean]
      def closed? = false

      # @return [self]
      def binmode = self

      # @return [self]
      def set_encoding(*) = self

      # @return [Encoding]
      def external_encoding = Encoding::BINARY

      # @return [Boolean]
      def sync = true

      # @return [Boolean]
      def sync=(value)
        value
      end
    end
  end
end
