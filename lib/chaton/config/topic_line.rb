# frozen_string_literal: true

module Chaton
  module Config
    # A `topic` line of a file: the topic's name, its consumer (the name of a class, a class without a name, or nil),
    # the given keywords, and the line's origin.
    TopicLine = Struct.new(:name, :consumer, :given, :origin) do
      # @param key [Symbol] a keyword of `topic`
      # @return [Object] its value, or its default
      def [](key)
        given.fetch(key) { Options[:"topic_#{key}"].default }
      end

      # @return [Symbol] which records run in order
      def order = self[:order] || (self[:concurrency] > 1 ? :key : :partition)

      # @return [Integer, nil] nil: for ever
      def retries
        given.fetch(:retries) { self[:dead_letter] && TopicLine::DEAD_LETTER_RETRIES }
      end

      # @return [String] as problems name it
      def to_s = "topic #{name.inspect}"
    end
    # With a dead-letter topic, unless the line sets a number.
    TopicLine::DEAD_LETTER_RETRIES = 5
  end
end
